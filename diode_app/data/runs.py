"""The runs as rows of a table, and all that is known of one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diode_app import text
from diode_app.data.curves import CurveReader, Curves, samples
from diode_app.data.hardware import describe_environment
from diode_app.data.run_columns import RUN_COLUMNS, changed_settings, show_efficiency
from diode_app.data.run_results import (
    Listed,
    RunReader,
    TrainingResult,
    baseline_of,
    describe_progress,
    read_run,
    remarks,
    seconds_left,
    training_result,
)
from diode_app.data.tables import Page, PageQuery, Row, make_cells, pick, sort_by
from diode_engine.runs import Status, find, look
from diode_engine.store import Store
from diode_engine.store.run_query import resumed_runs, run_contents

LOG_BYTES = 256 * 1024  # of a log that are shown
_HOT_C = 85  # where a GPU is shown as warm


@dataclass(frozen=True)
class Gauge:
    """A line with a bar: what a GPU of the run does (or all those of a machine of a cluster), or
    the run's machine, as the run reported it last. `share` fills the bar, from 0 to 1, and `value`
    is what it means; `colour` is the theme's."""

    title: str
    share: float | None
    value: str
    says: str
    colour: str = "primary"


@dataclass(frozen=True)
class RunView:
    """A run as its page shows it. `failures` are counts by their reasons; `baseline` is a pinned
    training and its curves; `is_resumed` says whether a later run continues it."""

    status: Status
    failures: Mapping[str, int]
    facts: tuple[tuple[str, str], ...]
    curves: Curves
    baseline: tuple[int, Curves] | None
    trained: TrainingResult | None
    is_resumed: bool


def run_view(store: Store, run: int, curves: CurveReader) -> RunView:
    """Raises StoreError where there is no such run."""
    status, contents = look(store, run), run_contents(store, run)
    progress = status.run.progress or {}
    baseline, trained = None, None
    if status.run.kind == "train":
        pinned = baseline_of(store)
        if pinned is not None and pinned != run:
            baseline = pinned, curves.read(store, pinned)
        if status.state == "done":
            trained = training_result(store.result(run))
    facts = _facts(status)
    if contents.timings:
        timings = text.quantity(contents.timings, "timings")
        facts.append(("holds", f"{timings} of {text.quantity(contents.problems, 'problems')}"))
    facts += [
        ("environment", f"{describe_environment(environment)} ({timings:,} timings)")
        for environment, timings in contents.by_environment
    ]
    return RunView(
        status=status,
        # The run's own report also counts the failures that are not in the store yet.
        failures=dict(progress.get("failures") or contents.failures),
        facts=tuple(facts),
        curves={**samples(progress), **curves.read(store, run)},
        baseline=baseline,
        trained=trained,
        is_resumed=run in resumed_runs(store),
    )


def gauges(status: Status) -> tuple[Gauge, ...]:
    """Return a gauge for each GPU of this machine, or for each machine of a cluster, and one for
    the run's machine."""
    machine, found = _machine(status), (status.run.progress or {}).get("gpus") or {}
    by_machine: dict[str, list[Mapping[str, Any]]] = {}
    for gpu in found.values():
        by_machine.setdefault(str(gpu.get("node") or ""), []).append(gpu)
    if "" in by_machine:
        shown = [_gpu(f"GPU {number}", [gpu]) for number, gpu in found.items()]
    else:
        shown = [
            _gpu(f"{name}, {text.quantity(len(of), 'GPUs')}", of) for name, of in by_machine.items()
        ]
    return (*shown, *([] if machine is None else [machine]))


def _gpu(title: str, gpus: Sequence[Mapping[str, Any]]) -> Gauge:
    """Return one GPU, or several as one: the highest temperature, the mean utilisation, and the
    sums of timings, power and memory."""

    def known(what: str) -> list[float]:
        return [gpu[what] for gpu in gpus if gpu.get(what) is not None]

    heat, power, busy = known("temperature_c"), known("power_w"), known("utilisation")
    memory, clock = known("memory_bytes"), known("clock_mhz")
    timings = sum(int(gpu.get("timings", 0)) for gpu in gpus)
    held_back = sorted({str(reason) for gpu in gpus for reason in gpu.get("held_back") or ()})
    words = [
        f"{timings:,} timings" if timings else "",
        f"{sum(busy) / len(busy):.0f} % busy" if busy else "",
        f"{int(clock[0])} MHz" if clock and len(gpus) == 1 else "",
        f"{sum(power):.0f} W" if power else "",
        text.size(int(sum(memory))) if memory else "",
        f"held back: {', '.join(held_back)}" if held_back else "",
    ]
    hottest = max(heat, default=None)
    return Gauge(
        title,
        None if hottest is None else hottest / 100,
        "" if hottest is None else f"{hottest:.0f} °C",
        "  ".join(filter(None, words)),
        "warning" if hottest is not None and hottest >= _HOT_C else "success",
    )


def _machine(status: Status) -> Gauge | None:
    """Return what the run uses of its machine now; at its end, the most that it used. None of a
    run without such a record."""
    progress, has_ended = status.run.progress or {}, status.state.ended
    if "machine" not in progress:
        return None
    now = progress["machine"]
    if not now:
        return Gauge("machine", None, "", "not known: this system has no /proc")
    peak = now["peak"]
    run = {**now, **peak} if has_ended else now
    processes, threads = int(run["processes"]), text.quantity(int(run["threads"]), "threads")
    words = [
        f"{'at most' if has_ended else 'run'} {_share(run['cpu'])} of "
        f"{text.quantity(now['cores'], 'cores')}",
        text.size(int(run["memory_bytes"])),
    ]
    if not has_ended:
        words[-1] += f" (peak {text.size(int(peak['memory_bytes']))})"
        words.append(
            f"machine {_share(now['cpu_machine'])}, {text.size(now['memory_machine_bytes'])} of "
            f"{text.size(now['memory_total_bytes'])}, load {now['load']}"
        )
    words.append(f"{processes:,} process{'' if processes == 1 else 'es'}, {threads}")
    words.append(f"{text.seconds(now['cpu_seconds'])} of CPU time")
    busy = run["cpu"] if has_ended else now["cpu_machine"]
    share, value = (None, "") if busy is None else (busy / 100, f"{busy:.0f} %")
    return Gauge("machine", share, value, " · ".join(words))


def _share(percent: float | None) -> str:
    return text.NONE if percent is None else f"{percent:.0f} %"


# Of the progress: what the page shows elsewhere.
_SHOWN = frozenset({"fraction", "doing", "nodes", "machine"})


def _facts(status: Status) -> list[tuple[str, str]]:
    run = status.run
    machine = _machine(status)
    process = run.process
    nodes = (run.progress or {}).get("nodes")  # machines of a cluster that make fits
    facts = {
        "why": status.why,
        "message": run.message,
        "started": text.moment(run.started),
        "started by": run.user,
        "worked for": text.seconds(status.seconds),
        "last heard of": None
        if run.finished is not None
        else f"{text.seconds(status.quiet_seconds)} ago",
        "continues": None if run.resumes is None else f"run {run.resumes}",
        "process": None if process is None else f"{process.pid} on {process.host}",
        "machine": None if machine is None else machine.says,
        "in": run.directory,
        "log": run.log,
        "settings": text.pairs(run.spec),
        **({f"on {name}": str(said) for name, said in nodes.items()} if nodes else {}),
        "progress": text.pairs({k: v for k, v in (run.progress or {}).items() if k not in _SHOWN}),
        "tags": " ".join(run.tags),
        "note": run.note,
    }
    return [(name, value) for name, value in facts.items() if value]


# The list

MAX_RUNS = 10_000  # the last ones that a filter matches
# Columns that are made from a training's result, and not from the run's row in the store alone.
_RESULTS = frozenset({"family", "efficiency", "against", "model", "data"})


def runs_page(store: Store, query: PageQuery, marks: Mapping[int, str], reader: RunReader) -> Page:
    """Return the runs that the filter matches (see `diode_engine.store.fields`), sorted by a
    column; `marks` by the runs' numbers. Raises QueryError for a mistake in the filter."""
    number = baseline_of(store)
    pinned = None if number is None else reader.read(store, look(store, number))

    def listed(status: Status) -> Listed:
        mark = marks.get(status.run.id, "")
        return replace(reader.read(store, status), pinned=pinned, mark=mark)

    found = find(store, query.filter, limit=MAX_RUNS)
    make = listed if query.sort in _RESULTS else Listed
    if query.sort is not None:
        (column,) = pick(RUN_COLUMNS, [query.sort])
        ordered = sort_by(map(make, found), column.value_of, descending=query.descending)
        found = [each.status for each in ordered]
    first = query.page * query.rows
    resumed = resumed_runs(store)
    rows = [_row(listed(status), resumed) for status in found[first : first + query.rows]]
    return Page(tuple(rows), len(found))


def _row(listed: Listed, resumed: Collection[int]) -> Row:
    status = listed.status.to_dict()
    record = {**status, "is_resumed": status["id"] in resumed, "efficiency": listed.efficiency}
    if listed.status.run.kind == "train":
        record["model"] = listed.model or None
    cells = {**make_cells(listed, RUN_COLUMNS), "efficiency": show_efficiency(listed)}
    return Row(str(listed.run), cells, record)


# The preview beside the list


@dataclass(frozen=True)
class RunPreview:
    """`view` and `facts` (the main ones) are of the run under the cursor. `curves` are those of all
    trainings that are drawn, by run."""

    view: RunView | None
    facts: tuple[tuple[str, str], ...]
    pinned: int | None
    curves: Mapping[int, Curves]


def run_preview(
    store: Store, run: int | None, marked: Sequence[int], reader: CurveReader
) -> RunPreview:
    """Return the preview of a run, with the curves of the `marked` ones. Raises StoreError where
    there is no such run."""
    pinned = baseline_of(store)
    drawn = [*([] if pinned is None else [pinned]), *marked]
    view: RunView | None = None
    facts: tuple[tuple[str, str], ...] = ()
    if run is not None:
        view = run_view(store, run, reader)
        facts = _main_facts(read_run(store, view.status), view)
        if view.status.run.kind == "train":
            drawn.append(run)
    curves = {each: reader.read(store, each) for each in dict.fromkeys(drawn)}
    return RunPreview(view, facts, pinned, curves)


def _main_facts(listed: Listed, view: RunView) -> tuple[tuple[str, str], ...]:
    status = view.status
    left = seconds_left(status)
    facts = [
        ("took" if status.state.ended else "so far", text.seconds(status.seconds)),
        ("left", "" if left is None else text.seconds(left)),
        ("message", remarks(status) or describe_progress(status)),
        ("efficiency", show_efficiency(listed)),
        ("model", listed.model),
        ("data", listed.data),
        ("changed", text.pairs(changed_settings(status))),
        ("failed", text.pairs(view.failures)),
        ("tags", " ".join(status.run.tags)),
    ]
    return tuple((name, value) for name, value in facts if value)
