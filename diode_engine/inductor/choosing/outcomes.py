"""What came of Diode's choices: counted, and said once where a product is left to Inductor."""

from __future__ import annotations

import logging

from diode_engine.inductor.choosing.stats import Fallback, Stats

log = logging.getLogger(__name__)


class LeftToStock(Exception):
    """A product that Diode does not choose for, which stock Inductor does."""

    def __init__(self, reason: Fallback, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Outcomes:
    """Where all parts of one installation of Diode's choices tell what came of them.

    With `enable_fallback` stock Inductor goes on where a part of Diode has raised, else that is
    raised to the program.
    """

    def __init__(self, *, enable_fallback: bool) -> None:
        self.enable_fallback = enable_fallback
        self.stats = Stats()

    def failed(self, what: str, error: Exception) -> None:
        """Notes that a part of Diode has raised and stock Inductor goes on; raises it again where
        there is no fallback."""
        if not self.enable_fallback:
            raise error
        log.debug("%s", what, exc_info=error)
        self.fall_back(Fallback.ERROR, f"{what}, {type(error).__name__}: {error}")

    def fall_back(self, reason: Fallback, why: str) -> None:
        """Notes that a product is left to stock Inductor."""
        if self.stats.fallback(reason):
            log.warning(
                "Diode leaves GEMMs to stock Inductor: %s (%s; said once, counted in "
                "diode_engine.get_stats()).",
                why,
                reason,
            )
