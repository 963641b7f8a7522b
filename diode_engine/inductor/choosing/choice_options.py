"""The options of a choice, as a program gives them when it installs Diode's choices."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from diode_engine.choosing.chooser import TimePredictor

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ChoiceOptions:
    """The arguments of DiodeInductorChoices, where they are described, and of the functions that
    make or install such choices."""

    model_path: str | os.PathLike[str] | None = None
    device: int | str | None = None
    top_k_configs: int = 3
    enable_fallback: bool = True
    performance_threshold: float = 1.1
    predictor: TimePredictor | None = field(default=None, kw_only=True)

    @property
    def index(self) -> int | None:
        """The index of `device`; None: the current GPU. Raises ValueError where it is neither an
        index nor a text such as "cuda" or "cuda:1"."""
        if self.device is None or isinstance(self.device, int):
            return self.device
        kind, _, number = str(self.device).partition(":")
        if kind not in ("cuda", "cpu") or not (number.isdecimal() or str(self.device) == kind):
            raise ValueError(f'device is {self.device!r}; it must be an index, "cuda" or "cuda:1".')
        return int(number) if kind == "cuda" and number else None

    def check(self) -> None:
        """Raises ValueError where an option has an invalid value."""
        _ = self.index
        if not isinstance(self.top_k_configs, int) or self.top_k_configs < 1:
            raise ValueError(f"top_k_configs is {self.top_k_configs!r}; it must be 1 or more.")
        if not self.performance_threshold >= 1:
            raise ValueError(
                f"performance_threshold is {self.performance_threshold!r}; it must be 1.0 or more."
            )


def taking(
    record: Callable[P, ChoiceOptions],
) -> Callable[[Callable[[ChoiceOptions], R]], Callable[P, R]]:
    """Decorates a function of one argument, a record such as ChoiceOptions: the decorated function
    takes the record's fields as its arguments instead."""

    def decorate(function: Callable[[ChoiceOptions], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def with_arguments(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(record(*args, **kwargs))

        signature = inspect.signature(record).replace(
            return_annotation=inspect.signature(function).return_annotation
        )
        with_arguments.__signature__ = signature  # type: ignore[attr-defined]
        return with_arguments

    return decorate
