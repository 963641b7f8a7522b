"""How far runs are, and what came of them: what a list shows of each, all that is known of a
training's model, and the training that others are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from diode_app import text

if TYPE_CHECKING:
    from diode_engine.runs import Status
    from diode_engine.store import Store

_MAX_SHARE = 0.99  # of a run that has not ended


def fraction(status: Status) -> float | None:
    """Return the share of its work that a run has done."""
    if status.state == "done":
        return 1.0
    progress = status.run.progress or {}
    told = as_number(progress.get("fraction"))  # of the whole run, whatever its stages
    if told is not None:
        return min(_MAX_SHARE, told)
    part, whole = as_number(progress.get("timings")), as_number(progress.get("candidates"))
    return min(1.0, part / whole) if part is not None and whole else None


def seconds_left(status: Status) -> float | None:
    """Seconds until the run is done: as the run says, else by its mean pace so far. None where that
    is not known, or the run has ended."""
    if status.state.ended:
        return None
    progress = status.run.progress or {}
    told = as_number(progress.get("seconds_left"))
    if told is not None:
        return told
    part = fraction(status)
    return status.seconds * (1 - part) / part if part else None


def outcome(status: Status) -> str:
    """Return the state as it is shown: a promotion that the gate has refused is not just done."""
    is_refused = status.state == "done" and (status.run.progress or {}).get("refused")
    return "refused" if is_refused else str(status.state)


def describe_progress(status: Status) -> str:
    """Return what a run's progress says besides how far it is."""
    run, progress = status.run, status.run.progress or {}
    words: list[str] = []
    if run.kind == "train" and "member" in progress and not status.state.ended:
        words = [
            f"{progress['member']}: {progress.get('step')} of {progress.get('steps')}, efficiency "
            f"{text.number(as_number(progress.get('efficiency')), 3)}"
        ]
        if rate := as_number(progress.get("rate")):
            words.append(f"{rate:.3g} steps/s")
        if stages := progress.get("stages"):
            words.append(f"fit {progress.get('stage')} of {stages}")
        return " · ".join(words)
    if (doing := progress.get("doing")) and not status.state.ended:
        words.append(str(doing))
    if status.state == "queued":
        words.append("starts")
    if run.kind == "train":
        return " · ".join(words)
    if (problems := progress.get("problems")) is not None and run.kind == "collect":
        words.append(
            f"{progress.get('problems_done', 0):,} of {text.quantity(problems, 'problems')}"
        )
        for name, label in (
            ("problems_refused", "refused"), ("problems_elsewhere", "left to another collection"),
        ):  # fmt: skip
            if count := progress.get(name):
                words.append(f"{count:,} {label}")
        if lost := progress.get("workers_lost"):
            words.append(f"{text.quantity(lost, 'workers')} lost")
    if rate := as_number(progress.get("rate")):
        words.append(f"{rate:.3g} timings/s")
    return " · ".join(words)


def headline(status: Status) -> str:
    """Return a run in one line: how far it is and how long it will take, or how it ended."""
    progress = status.run.progress or {}
    if how_it_ended := status.why or status.run.message:
        return how_it_ended
    words = [describe_progress(status)]
    if not status.state.ended:
        part, left = fraction(status), seconds_left(status)
        if not words[0] and part is not None:
            words.append(text.percent(part))
        if left is not None:
            words.append(f"{text.seconds(left)} left")
    if failed := sum((progress.get("failures") or {}).values()):
        words.append(f"{failed:,} failed")
    return " · ".join(filter(None, words))


def remarks(status: Status) -> str:
    """Return the person's note and the run's own message, in one line."""
    parts = filter(None, (status.run.note, status.why or status.run.message))
    return " · ".join(parts).replace("\n", " ")


def as_number(value: object) -> float | None:
    """Return the number in a run's progress; None where it is not a number."""
    return float(value) if isinstance(value, int | float) else None


# What came of them


# The tag of the run that others are compared with; not a word that a person might use.
BASELINE = "diode/baseline"


@dataclass(frozen=True)
class Listed:
    """A run in a list, live or ended. `family` is what a training makes; `model` is what it has
    registered, or what a validation judges. `efficiency` is on held-out problems where it
    `is_judged`; else that of a member in progress, on problems that it is not fitted to.
    `judged_on` are these problems in words, alike where efficiencies can be compared. `pinned` is
    the training that others are compared with; `mark` says how the run's curves are drawn."""

    status: Status
    family: str = ""
    model: str = ""
    data: str = ""
    efficiency: float | None = None
    is_judged: bool = False
    judged_on: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    pinned: Listed | None = None
    mark: str = ""

    @property
    def run(self) -> int:
        return self.status.run.id

    @property
    def progress(self) -> Mapping[str, Any]:
        return self.status.run.progress or {}

    @property
    def difference(self) -> float | None:
        """Its efficiency minus that of the pinned training, where both are of the same problems."""
        pinned = self.pinned
        if pinned is None or pinned.efficiency is None or self.efficiency is None:
            return None
        return self.efficiency - pinned.efficiency if pinned.judged_on == self.judged_on else None


class RunReader:
    """Reads runs for lists; the result of each is read once. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[int, Listed] = {}

    def read(self, store: Store, status: Status) -> Listed:
        known = self._known.get(status.run.id)
        if known is None:
            known = read_run(store, status)
            if status.state.ended:
                self._known[status.run.id] = known
        return replace(known, status=status)  # its tags and its note may have changed


def read_run(store: Store, status: Status) -> Listed:
    """Return the run with its result."""
    spec, progress = status.run.spec, status.run.progress or {}
    if status.run.kind == "train":
        return _training(store.result(status.run.id) if status.state == "done" else None, status)
    efficiency = as_number(progress.get("efficiency"))
    which = " ".join(map(str, (v for k, v in spec.items() if k not in ("model", "figure"))))
    judged_on = f"{progress.get('problems', 0):,} problems {which}".strip()
    return Listed(
        status,
        model=str(progress.get("judged") or ""),
        data=data_of(status),
        efficiency=efficiency,
        is_judged=efficiency is not None,
        judged_on="" if efficiency is None else judged_on,
    )


def _training(result: Mapping[str, Any] | None, status: Status) -> Listed:
    spec, progress = status.run.spec, status.run.progress or {}
    metrics = (result or {}).get("metrics") or {}
    tuned, data = spec.get("fine_tune"), data_of(status)
    efficiency, judged_on = metrics.get("efficiency", progress.get("efficiency")), ""
    if result:  # which problems are held out follows from the timings
        held_out = f"{result.get('held_out_problems', 0):,} of {data or 'all timings'}"
        judged_on = f"{held_out}, {result.get('hardware', '')}"
    return Listed(
        status,
        family=f"tuned {tuned}"[:20] if tuned else str(spec.get("family") or "ensemble"),
        model="" if result is None else str(result["model"]),
        data=data or "all",
        efficiency=efficiency if isinstance(efficiency, float) else None,
        is_judged="efficiency" in metrics,
        judged_on=judged_on,
        metrics=metrics,
    )


def data_of(status: Status) -> str:
    """Return the filter query, the source or the files that a run works on."""
    spec = status.run.spec
    found = next(filter(None, map(spec.get, ("query", "source", "file", "dataset"))), "")
    return " ".join(map(str, found)) if isinstance(found, list | tuple) else str(found)


# The pinned training


def baseline_of(store: Store) -> int | None:
    """Return the run that others are compared with: the last one with the tag."""
    from diode_engine.store.run_query import runs

    found = runs(store, f"kind:train tag:{BASELINE}", limit=1)
    return found[0].id if found else None


def pin(store: Store, run: int) -> bool:
    """Make a run the one that others are compared with, in place of another. Where it is that
    already, removes the tag and return False."""
    from diode_engine.store.run_query import runs

    pinned = [other.id for other in runs(store, f"kind:train tag:{BASELINE}")]
    for other in pinned:
        store.untag(other, BASELINE)
    if run in pinned:
        return False
    store.tag(run, BASELINE)
    return True


# The result of one


_BASE = "the model it was tuned from"


@dataclass(frozen=True)
class TrainingResult:
    """`facts` are (name, value), first what all choosers reach on problems that the judged model
    had not seen, the best first."""

    model: str
    folder: str
    facts: tuple[tuple[str, str], ...]


def training_result(document: Mapping[str, Any] | None) -> TrainingResult | None:
    """From the result in a training's run (see `training.train.Trained`); None where there is none,
    or the run is of another kind."""
    of = (document or {}).get("metrics")
    if document is None or not isinstance(of, Mapping) or "efficiency" not in of:
        return None
    bars = {document["model"]: of["efficiency"], **(of.get("efficiency_of_others") or {})}
    if (base := of.get("efficiency_of_base")) is not None:
        bars[_BASE] = base
    top = sorted((int(k), value) for k, value in (of.get("efficiency_top") or {}).items())
    error, off, by_chance = (
        of.get(name) for name in ("log_rmse", "calibration_error", "calibration_error_by_chance")
    )
    chance = "" if by_chance is None else f"; chance alone gives {by_chance:.3f}"
    facts = [
        ("", f"{document['model']} reaches {of['efficiency']:.3f} of the best kernels' speed on "
         f"{document['held_out_problems']:,} held-out problems (geometric mean)"),
        # The bars begin at an efficiency of 0.5.
        *((name, f"{value:.3f} {text.bar(2 * value - 1, 30).rstrip('░')}")
          for name, value in sorted(bars.items(), key=lambda bar: -bar[1])),
        ("worst tenth",
         f"below {of['efficiency_p10']:.3f}; the worst problem {of['efficiency_worst']:.3f}"),
        ("best of k", ", ".join(f"{value:.3f} of {k}" for k, value in top)),
        ("error", "" if error is None else f"{error:.3f} of the logarithm of times"),
        ("confidence", "" if off is None else f"off by {off:.3f}{chance}"),
        ("made for", document["hardware"]),
        ("made from", f"{document['timings']:,} timings of {document['problems']:,} problems"),
        *(("left out", f"{count:,} timings of {what}")
          for what, count in (document.get("left_out") or {}).items()),
        ("took", text.seconds(document["seconds"])),
        ("note", text.drop_usual_note(document.get("notes") or "")),
    ]  # fmt: skip
    known = tuple((name, value) for name, value in facts if value)
    return TrainingResult(document["model"], document["folder"], known)
