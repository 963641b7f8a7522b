"""Compares runs, or models: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diode_app import text
from diode_app.data.columns import Column
from diode_app.data.pages import Row

FACT = Column("fact", "fact", "what is known; in brackets the difference to the first")


@dataclass(frozen=True)
class Comparison:
    """What is known of each of several things, by the things' keys and the facts' names; not every
    fact is known of all. Numbers are compared with those of the first thing."""

    facts: Mapping[str, Mapping[str, Any]]

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
        shown = [_write(values[0]), *(_write(v) + _difference(v, values[0]) for v in values[1:])]
        cells = {"fact": name, **dict(zip(self.facts, shown, strict=True))}
        return Row(name, cells, {"fact": name, **dict(zip(self.facts, values, strict=True))})


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


def _difference(value: Any, first: Any) -> str:
    if not (_is_number(value) and _is_number(first)) or value == first:
        return ""
    apart = value - first
    shown = f"{apart:+,}" if isinstance(apart, int) else f"{apart:+.3g}"
    return f" ({shown})".replace("-", "−")
