"""What the choices did, counted."""

from __future__ import annotations

import threading
from collections import Counter
from enum import StrEnum


class Fallback(StrEnum):
    """Why a GEMM was left to stock Inductor."""

    ERROR = "error"  # Diode or its model raised
    UNSUPPORTED = "unsupported"  # no such problem in Diode: a dtype, an operand's strides
    NO_HINT = "no_hint"  # a dynamic size that nothing is known about
    NO_PREDICTION = "no_prediction"  # the model knows none of the candidates that fit
    OTHER_DEVICE = "other_device"  # a GPU of another kind than the model was loaded for
    FOREIGN_CHOICE = "foreign_choice"  # another backend's kernel, which nothing predicts


class Stats:
    """Counters, safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._fallbacks: Counter[Fallback] = Counter()
        self._seconds = 0.0

    def count(self, **amounts: int) -> None:
        with self._lock:
            self._counts.update(amounts)

    def spent(self, seconds: float) -> None:
        with self._lock:
            self._seconds += seconds

    def fallback(self, reason: Fallback) -> bool:
        """Counts it; True where it is the first for this reason."""
        with self._lock:
            self._fallbacks[reason] += 1
            return self._fallbacks[reason] == 1

    def snapshot(self) -> dict[str, int | float]:
        with self._lock:
            return {
                "total_calls": self._counts["total_calls"],
                "model_selections": self._counts["model_selections"],
                "configs_considered": self._counts["configs_considered"],
                "configs_filtered": self._counts["configs_filtered"],
                "cache_hits": self._counts["cache_hits"],
                "fallbacks": self._fallbacks.total(),
                **{f"fallback_{reason}": self._fallbacks[reason] for reason in Fallback},
                "seconds": self._seconds,
            }
