"""Compares runs: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.curves import CurveReader, Curves, kinds
from diode_app.data.pages import Row
from diode_app.data.run_columns import CELLS, Listed
from diode_app.data.trainings import baseline_of, training

if TYPE_CHECKING:
    from diode_engine.store import Store


@dataclass(frozen=True)
class Fact:
    """One fact on several runs, by their numbers; it need not be known of all. Numbers are compared
    with the first run's."""

    name: str
    values: Mapping[int, Any]

    def differs(self, runs: Sequence[int]) -> bool:
        return len({repr(self.values.get(run)) for run in runs}) > 1


@dataclass(frozen=True)
class ComparedRuns:
    """The compared runs; the first is the one that the others are compared with: the pinned run, if
    it is among them. `pinned` is its number."""

    runs: tuple[int, ...]
    pinned: int | None
    facts: tuple[Fact, ...]
    curves: Mapping[int, Curves]

    @property
    def kinds(self) -> list[str]:
        return kinds(name for curves in self.curves.values() for name in curves)

    def rows(self, *, all_facts: bool) -> tuple[Row, ...]:
        """A row for each fact, a cell for each run; only facts that differ, or all."""
        return tuple(self._row(fact) for fact in self.facts if all_facts or fact.differs(self.runs))

    def _row(self, fact: Fact) -> Row:
        first = fact.values.get(self.runs[0])
        cells = {"fact": fact.name}
        for place, run in enumerate(self.runs):
            value = fact.values.get(run)
            cells[str(run)] = _shown(value) + (_difference(value, first) if place else "")
        record = {"fact": fact.name} | {str(run): fact.values.get(run) for run in self.runs}
        return Row(fact.name, cells, record)


def compared_runs(store: Store, wanted: Sequence[int], reader: CurveReader) -> ComparedRuns:
    """These runs and the pinned one. Raises StoreError where one of them is no run."""
    pinned = baseline_of(store)
    runs = tuple(dict.fromkeys([*([] if pinned is None else [pinned]), *wanted]))
    found = {run: _facts(store, run) for run in runs}
    names = dict.fromkeys(name for facts in found.values() for name in facts)
    return ComparedRuns(
        runs,
        pinned,
        tuple(Fact(name, {run: facts.get(name) for run, facts in found.items()}) for name in names),
        {run: reader.read(store, run) for run in runs},
    )


def _facts(store: Store, run: int) -> dict[str, Any]:
    """What is known of a run, by name; numbers stay numbers, the rest becomes texts."""
    from diode_engine.runs import look

    status = look(store, run)
    is_training = status.run.kind == "train"
    listed = Listed(status, training(store, status) if is_training else None)
    facts: dict[str, Any] = {
        "efficiency": listed.efficiency,
        "state": CELLS["state"](listed),
        "kind": status.run.kind,
        "family": CELLS["family"](listed),
        "model": CELLS["model"](listed),
        "data": CELLS["data"](listed),
        "duration, s": round(status.seconds, 1),
        f"started, {text.zone()}": f"{text.local(status.run.started):%Y-%m-%d %H:%M:%S}",
        "host": None if status.run.process is None else status.run.process.host,
        "started by": status.run.user,
        "tags": " ".join(status.run.tags),
        "note": status.run.note,
    }
    metrics = {} if listed.training is None else listed.training.metrics
    facts |= {f"metric: {name}": value for name, value in _flat(metrics).items()}
    facts |= {f"setting: {name}": value for name, value in _flat(status.run.spec).items()}
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _flat(mapping: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The values of nested mappings, by names such as `network.epochs`."""
    found: dict[str, Any] = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        elif isinstance(value, list | tuple):
            found[f"{before}{name}"] = " ".join(map(str, value))
        else:
            found[f"{before}{name}"] = value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None:
        return text.NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _difference(value: Any, first: Any) -> str:
    if not (_is_number(value) and _is_number(first)) or value == first:
        return ""
    return f" ({value - first:+.3g})".replace("-", "−")
