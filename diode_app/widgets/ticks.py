"""Round numbers along an axis."""

from __future__ import annotations

import math

Tick = tuple[float, str]  # where it is, and what it says

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def linear(low: float, high: float, most: int, *, whole: bool = False) -> list[Tick]:
    """Return round numbers from `low` to `high`, about `most` at most; `whole` ones where there is
    nothing between, as with epochs."""
    if not high > low:
        return [(low, text_of(low))]
    rough = (high - low) / max(1, most)
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next((s * scale for s in _STEPS if s * scale >= rough * (1 - 1e-9)), 10 * scale)
    if whole:
        step = max(1.0, float(math.ceil(step)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(place * step, text_of(place * step)) for place in range(first, last + 1)]


def logarithmic(low: float, high: float, most: int) -> list[Tick]:
    """As `linear`, for an axis of logarithms to base 10; `low` and `high` are logarithms too. Ticks
    are at powers of ten, and at 2 and 5 times these where there is room, as logarithms."""
    first, last = math.floor(low - 1e-9), math.ceil(high + 1e-9)
    for factors in ((1, 2, 5), (1,)):
        found = [
            (math.log10(factor) + power, text_of(factor * 10.0**power))
            for power in range(first, last + 1)
            for factor in factors
            if low - 1e-9 <= math.log10(factor) + power <= high + 1e-9
        ]
        if 2 <= len(found) <= most:
            return found
    if len(found) > most:  # many powers of ten: every second, third, ...
        return found[:: math.ceil(len(found) / max(1, most))]
    shown = linear(10.0**low, 10.0**high, most)  # less than from one of them to the next
    return [(math.log10(value), says) for value, says in shown if value > 0]


def text_of(value: float) -> str:
    """Return a number as an axis shows it: 0.5, 20, 1,500, 3e+06."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-4):
        return f"{value:.3g}"
    return f"{round(value, 10):,.10g}"
