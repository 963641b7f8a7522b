"""Trainings: their results, and the one that others are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diode_engine.runs import Status
    from diode_engine.store import Store

# The tag of the run that others are compared with; not a word that a person might use.
BASELINE = "diode/baseline"


@dataclass(frozen=True)
class Training:
    """A training, live or ended. `efficiency` is on held-out problems where it is `judged`; else
    that of a member in progress, on problems that it is not fitted to."""

    status: Status
    what: str
    data: str
    efficiency: float | None
    judged: bool
    model: str | None
    judged_on: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run(self) -> int:
        return self.status.run.id


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
        judged_on=_judged_on(result, spec) if result else "",
        metrics=metrics,
    )


def _judged_on(result: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return the problems that the model was judged on. Which problems are held out follows from
    the timings, so that equal words mean equal problems."""
    data = spec.get("query") or spec.get("dataset") or "all timings"
    return f"{result.get('held_out_problems', 0):,} of {data}, {result.get('hardware', '')}"


class Trainings:
    """Reads trainings; the result of each is read once. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[int, Training] = {}

    def read(self, store: Store, status: Status) -> Training:
        known = self._known.get(status.run.id)
        if known is None:
            known = training(store, status)
            if status.state.ended:
                self._known[status.run.id] = known
        return replace(known, status=status)  # its tags and its note may have changed


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
