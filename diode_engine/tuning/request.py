"""What is asked of a tuning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diode_engine.core.problem import Problem

NONE = "none"  # of a base: no model to start from


@dataclass(frozen=True)
class TuneRequest:
    """What is asked of a tuning. `base` is the model to start from: a reference, NONE, or None for
    the model that is taken for the GPU now. `own` are a program's products; they are timed first
    and with more candidates, and the registered model has learned from all of them. `gpus` are
    those of this machine; none, where those of a cluster are used."""

    minutes: float = 10.0
    base: str | None = None
    own: tuple[Problem, ...] = ()
    name: str | None = None
    seed: int = 0
    gpus: tuple[int, ...] = (0,)
    asked: Mapping[str, Any] = field(default_factory=dict)  # more of the run's spec

    def spec(self) -> dict[str, Any]:
        """The request as the run's spec."""
        return {
            "minutes": self.minutes, "from": self.base, "own": len(self.own) or None,
            "name": self.name, "seed": self.seed, "gpus": list(self.gpus), **self.asked,
        }  # fmt: skip
