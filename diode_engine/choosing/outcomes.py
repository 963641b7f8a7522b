"""The results of Diode's choices: counted, and logged once where Diode makes no choice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from diode_engine.choosing.stats import Fallback, Stats

log = logging.getLogger(__name__)

# What Diode may make no choice for.
PRODUCTS = "some products"
FLEX_CALLS = "calls of FlexAttention"


class LeftToStock(Exception):
    """Raised for a product that Diode makes no choice for. It is lowered as in the default mode,
    unless the program asks for Inductor's search."""

    def __init__(self, reason: Fallback, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Outcomes:
    """Where all parts of one installation of Diode's choices report their results. With
    `enable_fallback` a product is lowered without Diode where a part of Diode has raised; else, and
    where the choices of the present compile are frozen, the program gets the exception."""

    def __init__(
        self, *, enable_fallback: bool, is_frozen: Callable[[], bool] = lambda: False
    ) -> None:
        self.enable_fallback = enable_fallback
        self._is_frozen = is_frozen
        self.stats = Stats()
        self._lock = threading.Lock()
        self._said: set[tuple[str, Fallback]] = set()

    def report_failure(self, what: str, error: Exception, left: str = PRODUCTS) -> None:
        """Notes that a part of Diode has raised and makes no choice for what is `left`; raises the
        error again without fallback. LeftToStock is no failure: its reason is counted."""
        if isinstance(error, LeftToStock):
            self.fall_back(error.reason, str(error), left)
            return
        if not self.enable_fallback or self._is_frozen():
            raise error
        log.debug("%s", what, exc_info=error)
        self.fall_back(Fallback.ERROR, f"{what}, {type(error).__name__}: {error}", left)

    def fall_back(self, reason: Fallback, why: str, left: str = PRODUCTS) -> None:
        """Notes that Diode makes no choice for a product, or for what else is `left`."""
        self.stats.count_fallback(reason, why)
        with self._lock:
            first = (left, reason) not in self._said
            self._said.add((left, reason))
        if first:
            log.warning(
                "Diode makes no choice for %s: %s (%s; logged once, counted in "
                "diode_engine.get_stats()).",
                left,
                why,
                reason,
            )
