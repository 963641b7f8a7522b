"""Trainings beside each other: their results, and their curves over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.curves import CurveReader, Curves, kinds
from diode_app.data.pages import Page, PageQuery, Row
from diode_app.data.progress import fraction, remarks

if TYPE_CHECKING:
    from diode_engine.runs import Status
    from diode_engine.store import Store

MOST_TRAININGS = 500  # the last ones that a filter matches
# The tag of the run that others are compared with; not a word that a person might use.
BASELINE = "diode/baseline"


@dataclass(frozen=True)
class Training:
    """A training, live or over. `efficiency` is on held-out problems where it is `judged`, else
    what a member that is being fitted reaches on problems that it is not fitted to."""

    status: Status
    what: str
    data: str
    efficiency: float | None
    judged: bool
    model: str | None

    @property
    def run(self) -> int:
        return self.status.run.id

    @property
    def is_baseline(self) -> bool:
        return BASELINE in self.status.run.tags


def training(store: Store, status: Status) -> Training:
    spec, progress = status.run.spec, status.run.progress or {}
    result = store.result(status.run.id) if status.state == "done" else None
    metrics = (result or {}).get("metrics") or {}
    tuned = spec.get("fine_tune")
    family = str(spec.get("family") or "ensemble")
    efficiency = metrics.get("efficiency", progress.get("efficiency"))
    return Training(
        status,
        what=f"tuned {tuned}"[:20] if tuned else family,
        data=str(spec.get("query") or spec.get("dataset") or "all"),
        efficiency=efficiency if isinstance(efficiency, float) else None,
        judged="efficiency" in metrics,
        model=None if result is None else str(result["model"]),
    )


def last_trainings(store: Store, count: int) -> tuple[Training, ...]:
    """The last one first."""
    from diode_engine.runs import find

    return tuple(training(store, status) for status in find(store, "kind:train", limit=count))


def trainings_page(store: Store, query: PageQuery, marked: frozenset[int]) -> Page:
    """The trainings that the filter matches, with a mark on those that are `marked`. Raises
    QueryError for a mistake in the filter."""
    from diode_engine.runs import find

    found = [
        training(store, status)
        for status in find(store, f"{query.filter} kind:train", limit=MOST_TRAININGS)
    ]
    if query.sort is not None:
        found.sort(key=_SORTS[query.sort], reverse=query.descending)
    first = query.page * query.rows
    rows = found[first : first + query.rows]
    return Page(tuple(_row(t, t.run in marked) for t in rows), len(found))


def _row(t: Training, marked: bool) -> Row:
    run = t.status.run
    part = fraction(t.status)
    shown = "" if t.efficiency is None else f"{t.efficiency:.3f}"
    cells = {
        "shown": "pinned" if t.is_baseline else "shown" if marked else "",
        "run": str(run.id),
        "state": text.state(str(t.status.state)),
        "progress": "" if part is None or t.status.state.ended else text.bar(part, 8),
        "what": t.what,
        "efficiency": shown if t.judged or not shown else f"({shown})",
        "model": t.model or "",
        "data": t.data,
        "started": f"{text.local(run.started):%m-%d %H:%M}",
        "note": remarks(t.status),
    }
    record = {**t.status.to_dict(), "efficiency": t.efficiency, "model": t.model}
    return Row(str(run.id), cells, record)


_SORTS: Mapping[str, Any] = {
    "run": lambda t: t.run,
    "state": lambda t: str(t.status.state),
    "what": lambda t: t.what,
    "efficiency": lambda t: t.efficiency or 0.0,
    "model": lambda t: t.model or "",
    "data": lambda t: t.data,
    "started": lambda t: t.status.run.started,
}
SORTABLE = frozenset(_SORTS)


@dataclass(frozen=True)
class Compared:
    """The curves of several runs, by run; the pinned one, if any, first."""

    baseline: int | None
    curves: Mapping[int, Curves]

    @property
    def kinds(self) -> list[str]:
        return kinds(name for curves in self.curves.values() for name in curves)


def compared(store: Store, runs: Sequence[int], reader: CurveReader) -> Compared:
    """The curves of the pinned run and of these; what is no run any more is left out."""
    baseline = baseline_of(store)
    wanted = dict.fromkeys([*([] if baseline is None else [baseline]), *runs])
    return Compared(baseline, {run: reader.read(store, run) for run in wanted})


def baseline_of(store: Store) -> int | None:
    """The run that others are compared with, the last one that has the tag."""
    from diode_engine.store.query import runs

    found = runs(store, f"kind:train tag:{BASELINE}", limit=1)
    return found[0].id if found else None


def pin(store: Store, run: int) -> bool:
    """Makes a run the one that others are compared with, in place of another; returns False
    where it was that already, and is not any more."""
    from diode_engine.store.query import runs

    pinned = [other.id for other in runs(store, f"kind:train tag:{BASELINE}")]
    for other in pinned:
        store.untag(other, BASELINE)
    if run in pinned:
        return False
    store.tag(run, BASELINE)
    return True
