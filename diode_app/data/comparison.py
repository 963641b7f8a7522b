"""Compares runs, or models: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diode_app import text
from diode_app.data.tables import Column, Row

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
