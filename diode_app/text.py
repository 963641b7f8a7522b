"""Numbers, times and states as the dashboard writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from diode_engine.plain_text import format_duration

T = TypeVar("T")
# By state: its sign, and its colour as a variable of the theme. The sign and the word are enough to
# recognise a state without the colour.
STATES = {
    "queued": ("◌", "text-muted"),
    "running": ("▶", "text-primary"),
    "cancelling": ("◍", "text-warning"),
    "done": ("✓", "text-success"),
    "failed": ("✗", "text-error"),
    "cancelled": ("■", "text-warning"),
    "dead": ("†", "text-error"),
    "refused": ("✗", "text-warning"),  # a promotion, by the gate
}
NONE = "–"
_USUAL_NOTE = re.compile(r"The metrics are on [\d,]+ problems that this model has not seen\.")


def next_of(names: Sequence[T], now: T | None) -> T:
    """Return the name after this one, the first after the last one; the first for another name."""
    return names[(names.index(now) + 1) % len(names)] if now in names else names[0]


def state(name: str) -> str:
    """Return the state with its sign, such as `▶ running`."""
    return f"{STATES[name][0]} {name}"


def count(number: int | None) -> str:
    """Return the number with separators, such as 97,499."""
    return NONE if number is None else f"{number:,}"


def quantity(number: int, plural: str) -> str:
    """Return the number of things, such as `1 run` and `12 runs`."""
    return f"{number:,} {plural.removesuffix('s') if number == 1 else plural}"


def size(number: int) -> str:
    """Return a number of bytes in the largest unit that leaves at least 1, such as 12.3 MiB."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: float | None) -> str:
    """Return a time in its two largest units, such as `3 min 20 s`; a dash for None."""
    if value is None or not math.isfinite(value):
        return NONE
    return format_duration(value)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with `digits` significant digits; a dash for None."""
    return NONE if value is None or not math.isfinite(value) else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """Return a fraction in percent with one decimal; a dash for None."""
    return NONE if value is None else f"{100 * value:.1f} %"


def microseconds(value: float | None) -> str:
    """Return a time in µs with two decimals, below 1 with three; empty for None, 0 for none."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    return f"{value:,.2f}" if value >= 1 else f"{value:.3f}"


def ratio(value: float | None) -> str:
    """Return a ratio with three decimals, such as 0.972; empty for None."""
    return "" if value is None or not math.isfinite(value) else f"{value:.3f}"


def difference(value: float | None) -> str:
    """Return a signed difference with three decimals; empty for None."""
    return "" if value is None else f"{value:+.3f}".replace("-", "−")


def change(value: float | None) -> str:
    """Return a relative change as a signed percentage, such as +3 % or −12 %; from ten times on as
    a ratio, such as ×37; empty for None."""
    if value is None or not math.isfinite(value):
        return ""
    if value >= 9:
        return f"×{1 + value:,.0f}"
    percent = round(100 * value)
    return f"{percent:+d} %".replace("-", "−") if percent else "0 %"


def moment(value: datetime | None) -> str:
    """Return a time to the second, in the local time; where that differs from UTC, also in UTC,
    which the store has and queries use."""
    if value is None:
        return NONE
    here = f"{value.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    utc = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}"
    return here if here == utc else f"{here} ({utc})"


def minute(written: str) -> str:
    """Return a time in ISO 8601 to the minute, in the local time."""
    return f"{datetime.fromisoformat(written).astimezone():%Y-%m-%d %H:%M}"


def zone() -> str:
    """Return the name of the local time zone, such as CET."""
    return datetime.now(UTC).astimezone().tzname() or "UTC"


def bar(fraction: float | None, width: int) -> str:
    """Return a bar of `width` columns that is filled to this fraction; dots for None."""
    if fraction is None:
        return "·" * width
    filled = round(max(0.0, min(1.0, fraction)) * width)
    return "█" * filled + "░" * (width - filled)


def drop_usual_note(notes: str) -> str:
    """Return a model's notes without the usual sentence on its metrics. That counts all held-out
    problems, also the few that it could not be judged on, which are not in the metrics."""
    rest = _USUAL_NOTE.sub("", notes).strip()
    return "" if rest.endswith("says:") else rest


def pairs(mapping: Mapping[str, object]) -> str:
    """Return `name value` of all that have a value, with commas between."""
    words = []
    for name, value in mapping.items():
        if value is None or value is False or value == "" or isinstance(value, Mapping):
            continue
        label = name.replace("_", " ")
        if isinstance(value, float):
            value = f"{value:.4g}"
        words.append(label if value is True else f"{label} {value}")
    return ", ".join(words)
