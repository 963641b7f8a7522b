"""Statistics of the choices, and profiles that collect each choice while they are open."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diode_engine.choosing.choice import Choice
    from diode_engine.core.problem import Problem


class Fallback(StrEnum):
    """Why Diode made no choice for a product. It gets the library's kernel as in plain
    torch.compile, except for the last three reasons, for which the program itself asks for
    Inductor's search."""

    ERROR = "error"  # Diode or its model raised
    UNSUPPORTED = "unsupported"  # no such problem in Diode: a dtype, an operand's strides
    NO_HINT = "no_hint"  # a dynamic size that nothing is known about
    NO_PREDICTION = "no_prediction"  # the model knows none of the candidates that fit
    OTHER_DEVICE = "other_device"  # a GPU of another kind than the model was loaded for
    BATCH_INVARIANT = "batch_invariant"  # no kernel's results are known not to depend on the batch
    LOW_CONFIDENCE = "low_confidence"  # diode_fallback_to_autotune, under the threshold
    FOREIGN_CHOICE = "foreign_choice"  # another backend's kernel, which nothing predicts
    ALTERED_SEARCH = "altered_search"  # somebody narrowed, replaced or watches Inductor's search


# What Diode makes no choice for because there is no model for it, by Inductor's name of the op (any
# other is "other"): products that not all models were trained on, and calls of FlexAttention.
OTHER_OPS = (
    "mm_plus_mm", "int_mm", "scaled_mm", "grouped_mm", "scaled_grouped_mm", "flex_attention",
)  # fmt: skip


@dataclass
class Profile:
    """The choices that were made while it was open, in order, and the seconds that they took."""

    selections: list[Choice] = field(default_factory=list)
    seconds: float = 0.0

    def take_choice(self, choice: Choice) -> None:
        """Takes a choice, in the thread that made it."""
        self.selections.append(choice)

    def take_left(self, why: str) -> None:
        """Takes the reason why no choice was made for a product; keeps none."""

    def take_decision(self, what: str, problem: Problem, answer: bool) -> None:
        """Takes a decision about a product before it is lowered, named `what`; keeps none."""

    def take_moved(self, activation: str, problem: Problem, choice: Choice) -> None:
        """Takes an activation that moved into the product of the problem, for which the choice is
        the library's kernel (no kernel, where it is frozen), as this is lowered; keeps none."""


class Stats:
    """Counters, safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._fallbacks: Counter[Fallback] = Counter()
        self._passed: Counter[str] = Counter()
        self._seconds = 0.0
        self._confidence = 0.0  # the sum over those that are known

    def count(self, name: str, amount: int = 1) -> None:
        """Adds to the counter of this name (see `snapshot`)."""
        with self._lock:
            self._counts[name] += amount

    def count_call(self, seconds: float) -> None:
        """Counts a call of the hook for one of Diode's ops, and its time."""
        self.count("total_calls")
        self.count_seconds(seconds)

    def count_seconds(self, seconds: float) -> None:
        """Counts time that was spent choosing."""
        with self._lock:
            self._seconds += seconds
            for profile in _profiles:
                profile.seconds += seconds

    def count_fallback(self, reason: Fallback, why: str) -> None:
        """Counts a fallback; `why` is the reason in words."""
        with self._lock:
            self._fallbacks[reason] += 1
            for profile in _profiles:
                profile.take_left(why)

    def count_passed(self, op_name: str) -> None:
        """Counts a product, or a call of FlexAttention, that there is no model for."""
        with self._lock:
            self._passed[op_name if op_name in OTHER_OPS else "other"] += 1
            for profile in _profiles:
                profile.take_left(f"the model was not trained on {op_name}")

    def record_choice(self, choice: Choice) -> None:
        """Counts a choice, and gives it to the open profiles."""
        with self._lock:
            self._counts["model_selections"] += 1
            self._counts["benchmarked"] += len(choice.candidates) > 1
            if choice.confidence is not None:
                self._counts["with_confidence"] += 1
                self._confidence += choice.confidence
            for profile in _profiles:
                profile.take_choice(choice)

    def record_decision(self, what: str, problem: Problem, answer: bool) -> None:
        """Gives a decision to the open profiles (see `Profile.take_decision`)."""
        with self._lock:
            for profile in _profiles:
                profile.take_decision(what, problem, answer)

    def record_moved(self, activation: str, problem: Problem, choice: Choice) -> None:
        """Gives a moved activation to the open profiles (see `Profile.take_moved`)."""
        with self._lock:
            for profile in _profiles:
                profile.take_moved(activation, problem, choice)

    def snapshot(self) -> dict[str, int | float]:
        """The dictionary that diode_engine.get_stats returns."""
        with self._lock:
            return {
                **{
                    name: self._counts[name]
                    for name in (
                        "total_calls", "model_selections", "benchmarked", "configs_considered",
                        "configs_filtered", "cache_hits", "fusion_decided", "padding_decided",
                        "flex_decided", "convolutions_kept", "activations_moved",
                        "algorithms_chosen",
                    )
                },
                "fallbacks": self._fallbacks.total(),
                **{f"fallback_{reason}": self._fallbacks[reason] for reason in Fallback},
                **{f"passed_{op}": self._passed[op] for op in (*OTHER_OPS, "other")},
                "seconds": self._seconds,
            }  # fmt: skip

    def predictions(self) -> dict[str, int | float]:
        """The dictionary that diode_engine.get_prediction_stats returns."""
        with self._lock:
            calls, known = self._counts["total_calls"], self._counts["with_confidence"]
            return {
                "total_predictions": self._counts["model_selections"],
                "avg_confidence": self._confidence / known if known else math.nan,
                "benchmarked": self._counts["benchmarked"],
                "cache_hits": self._counts["cache_hits"],
                "fallbacks": self._fallbacks.total(),
                "avg_ms": 1e3 * self._seconds / calls if calls else math.nan,
            }


_profiles: list[Profile] = []


@contextmanager
def profile_predictions() -> Iterator[Profile]:
    """Collects every choice that is made in this process while it is open, in all threads."""
    profile = Profile()
    begin_profile(profile)
    try:
        yield profile
    finally:
        end_profile(profile)


def begin_profile(profile: Profile) -> None:
    """Gives every choice that is made in this process to the profile, until `end_profile`."""
    _profiles.append(profile)


def end_profile(profile: Profile) -> None:
    """Ends what `begin_profile` began."""
    _profiles[:] = [other for other in _profiles if other is not profile]
