"""Compares runs: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.comparison import NOT_COMPARABLE, Comparison, flatten, name_metric
from diode_app.data.curves import CurveReader, Curves, kinds
from diode_app.data.run_columns import Listed, cell
from diode_app.data.trainings import baseline_of, training

if TYPE_CHECKING:
    from diode_engine.store import Store


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
    from diode_engine.runs import look

    status = look(store, run)
    listed = Listed(status, training(store, status) if status.run.kind == "train" else None)
    metrics = {} if listed.training is None else listed.training.metrics
    facts: dict[str, Any] = {
        "of best": listed.efficiency if listed.judged_on else cell(listed, "efficiency"),
        "judged on": listed.judged_on,
        **{name_metric(name): value for name, value in flatten(metrics).items()},
        "state": cell(listed, "state"),
        "kind": status.run.kind,
        "family": cell(listed, "family"),
        "model": cell(listed, "model"),
        "data": cell(listed, "data"),
        **{f"setting {name.replace('_', ' ').replace('.', ' ')}": value
           for name, value in flatten(status.run.spec).items()},
        "seconds": round(status.seconds),
        f"started, {text.zone()}": f"{text.local(status.run.started):%Y-%m-%d %H:%M:%S}",
        "host": None if status.run.process is None else status.run.process.host,
        "started by": status.run.user,
        "tags": " ".join(status.run.tags),
        "note": status.run.note,
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value not in (None, "")}
