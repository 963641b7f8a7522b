"""Compares runs, or models: what differs between them, and why the best run won."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diode_app import text
from diode_app.data.curves import CurveReader, Curves, kinds
from diode_app.data.run_columns import show_efficiency
from diode_app.data.run_results import RunReader, baseline_of, outcome, read_run
from diode_app.data.tables import Column, Row
from diode_engine.errors import DiodeError
from diode_engine.runs import find, look
from diode_engine.store import Store
from diode_engine.training.importance import setting_importances

FACT = Column("fact", "fact", "what is known; in brackets the difference to the first")
NOT_COMPARABLE = (
    "They were judged on different problems, so their efficiencies cannot be compared. Judge their "
    "models on the same ones in Validate."
)
_METRICS = {
    "problems": "problems judged on",
    "efficiency": "of best",
    "efficiency_p10": "worst tenth, below",
    "efficiency_worst": "worst problem",
    "efficiency_of_base": "the model it was tuned from",
    "log_rmse": "error of the times' logarithm",
    "calibration_error": "confidence is off by",
    "calibration_error_by_chance": "off by chance alone",
}
_NUMBERS = {"1": "one", "2": "two", "3": "three", "5": "five", "10": "ten"}


def name_metric(name: str) -> str:
    """Return a metric of a model in words; `name` is such as log_rmse or efficiency_top 3."""
    kind, _, which = name.partition(" ")
    if kind == "efficiency_top":
        return f"best of the first {_NUMBERS.get(which, which)}"
    if kind == "efficiency_surest":
        return f"surest {100 * float(which):.0f} %"
    return which if kind == "efficiency_of_others" else _METRICS.get(name, name.replace("_", " "))


def flatten(mapping: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the values of nested mappings, by names such as `network epochs`."""
    found: dict[str, Any] = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{before}{name} ")
        else:
            found[before + name] = (
                " ".join(map(str, value)) if isinstance(value, list | tuple) else value
            )
    return found


@dataclass(frozen=True)
class Comparison:
    """What is known of each of several things, by the things' keys and the facts' names; not every
    fact is known of all. Numbers are compared with those of the first thing. `warning` says why
    efficiencies cannot be compared."""

    facts: Mapping[str, Mapping[str, Any]]
    warning: str = ""

    def rows(self, *, all_facts: bool) -> tuple[Row, ...]:
        """Return a row for each fact, a cell for each thing; only facts that differ, or all."""
        names = dict.fromkeys(name for known in self.facts.values() for name in known)
        found = ((name, [known.get(name) for known in self.facts.values()]) for name in names)
        return tuple(
            self._row(name, values)
            for name, values in found
            if all_facts or len(set(map(repr, values))) > 1
        )

    def _row(self, name: str, values: Sequence[Any]) -> Row:
        shown = [_write(values[0]), *(_write(v) + self._apart(v, values[0]) for v in values[1:])]
        cells = {"fact": name, **dict(zip(self.facts, shown, strict=True))}
        return Row(name, cells, {"fact": name, **dict(zip(self.facts, values, strict=True))})

    def _apart(self, value: Any, first: Any) -> str:
        """Return the difference in brackets; of fractions none where these cannot be compared."""
        if not (_is_number(value) and _is_number(first)) or value == first:
            return ""
        if self.warning and isinstance(value, float):
            return ""
        apart = value - first
        shown = f"{apart:+,}" if isinstance(apart, int) else f"{apart:+.3g}"
        return f" ({shown})".replace("-", "−")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _write(value: Any) -> str:
    if value is None:
        return text.NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# Runs


OF_BEST = "of best"
_TRAININGS = 500  # at most, the last ones
_AXES = 6  # of the settings, beside the efficiency
_BAR = 10


@dataclass(frozen=True)
class ComparedRuns:
    """The compared runs; the first is the one that the others are compared with: the pinned run, if
    it is among them. `pinned` is its number."""

    runs: tuple[int, ...]
    pinned: int | None
    comparison: Comparison
    curves: Mapping[int, Curves]

    @property
    def kinds(self) -> list[str]:
        return kinds(name for curves in self.curves.values() for name in curves)


def compare_runs(store: Store, wanted: Sequence[int], reader: CurveReader) -> ComparedRuns:
    """Return these runs and the pinned one. Raises StoreError where one of them is no run."""
    pinned = baseline_of(store)
    runs = tuple(dict.fromkeys([*([] if pinned is None else [pinned]), *wanted]))
    facts = {str(run): _facts(store, run) for run in runs}
    judged = {known["judged on"] for known in facts.values() if "judged on" in known}
    return ComparedRuns(
        runs,
        pinned,
        Comparison(facts, NOT_COMPARABLE if len(judged) > 1 else ""),
        {run: reader.read(store, run) for run in runs},
    )


def _facts(store: Store, run: int) -> dict[str, Any]:
    """Return what is known of a run, by name; numbers stay numbers, the rest becomes texts."""
    status = look(store, run)
    listed = read_run(store, status)
    facts: dict[str, Any] = {
        OF_BEST: listed.efficiency if listed.judged_on else show_efficiency(listed),
        "judged on": listed.judged_on,
        **{name_metric(name): value for name, value in flatten(listed.metrics).items()},
        "state": text.state(outcome(status)),
        "kind": status.run.kind,
        "family": listed.family,
        "model": listed.model,
        "data": listed.data,
        **{f"setting {name.replace('_', ' ').replace('.', ' ')}": value
           for name, value in flatten(status.run.spec).items()},
        "seconds": round(status.seconds),
        f"started, {text.zone()}": f"{status.run.started.astimezone():%Y-%m-%d %H:%M:%S}",
        "host": None if status.run.process is None else status.run.process.host,
        "started by": status.run.user,
        "tags": " ".join(status.run.tags),
        "note": status.run.note,
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value not in (None, "")}


@dataclass(frozen=True)
class Winning:
    """`runs` are the compared trainings with their settings and efficiency by name, the best one
    first. `importances` are of the settings that differ between `judged` trainings of the store,
    which were judged on `judged_on`; `why_not` says why there are none."""

    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    importances: Mapping[str, float] = field(default_factory=dict)
    judged: int = 0
    judged_on: str = ""
    why_not: str = ""

    @property
    def title(self) -> str:
        if not self.runs:
            return "None of these runs is a training that was judged"
        title = f"Why run {next(iter(self.runs))} is the best"
        if not self.importances:
            return title
        return f"{title}; what mattered in {self.judged} trainings judged on {self.judged_on}"

    def rows(self) -> list[Row]:
        """Return the efficiency and then the settings, those that mattered most first."""
        found = {row.key: row for row in Comparison(self.runs).rows(all_facts=True)}
        rows = []
        for name in (OF_BEST, *(self.importances or self._differing())):
            share = self.importances.get(name)
            shown = "" if share is None else f"{text.bar(share, _BAR)} {text.percent(share)}"
            row = found.get(name, Row(name, {"fact": name}))
            cells = {"importance": shown, **row.cells}
            rows.append(Row(name, cells, {"importance": share, **row.record}))
        return rows

    def axes(self) -> list[str]:
        """Return the axes of the parallel view: the settings that matter most, and the
        efficiency."""
        differing = self._differing()
        names = [name for name in self.importances if name in differing] or differing
        return [*names[:_AXES], OF_BEST]

    def _differing(self) -> list[str]:
        """Return the settings that differ between the compared runs."""
        rows = Comparison(self.runs).rows(all_facts=False)
        return [row.key for row in rows if row.key != OF_BEST]

    def places(self, run: str) -> list[float]:
        """Return where the run is on each axis, from 0 (the least value of the compared runs) to
        1; NaN where its value is not known."""
        return [self._place(name, self.runs[run].get(name)) for name in self.axes()]

    def _place(self, name: str, value: Any) -> float:
        known = [v for facts in self.runs.values() if (v := facts.get(name)) is not None]
        if value is None:
            return float("nan")
        if not all(isinstance(v, int | float) for v in known):
            names = sorted(set(map(str, known)))
            known, value = list(range(len(names))), names.index(str(value))
        return (value - min(known)) / (max(known) - min(known)) if len(set(known)) > 1 else 0.5


def why_won(store: Store, wanted: Sequence[int], trainings: RunReader) -> Winning:
    """Return why the best of these runs is better than the others."""
    found = [trainings.read(store, s) for s in find(store, "kind:train state:done",
                                                    limit=_TRAININGS)]  # fmt: skip
    settings = {
        t.run: {name: v for name, v in flatten(t.status.run.spec).items() if v is not None}
        for t in found
        if t.is_judged and t.efficiency is not None
    }
    known = {t.run: t for t in found if t.run in settings}
    compared = sorted((t for run, t in known.items() if run in wanted),
                      key=lambda t: -(t.efficiency or 0.0))  # fmt: skip
    if not compared:
        return Winning()
    best = compared[0].judged_on
    alike = [t for t in known.values() if t.judged_on == best]
    runs = {str(t.run): {OF_BEST: t.efficiency, **settings[t.run]} for t in compared}
    importances, why_not = {}, ""
    try:
        importances = setting_importances([(settings[t.run], t.efficiency or 0.0) for t in alike])
    except DiodeError as error:
        why_not = str(error)
    if any(t.judged_on != best for t in compared):
        why_not = f"{why_not} They were judged on different problems.".strip()
    return Winning(runs, importances, len(alike), best, why_not)
