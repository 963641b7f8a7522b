"""How long a kernel took on a product, or why it has no time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from diode_engine.core.checks import is_int, member, require

MAX_US = 3.6e9  # an hour: no kernel takes so long, so a longer time has a wrong unit
_MAX_COUNT = 2**31 - 1  # of launches, and of what a compiler reports


class Failure(StrEnum):
    """Why a candidate has no time."""

    COMPILE_ERROR = "compile_error"
    OUT_OF_RESOURCES = "out_of_resources"  # shared memory or registers
    OUT_OF_MEMORY = "out_of_memory"  # device memory
    LAUNCH_ERROR = "launch_error"
    ILLEGAL_ACCESS = "illegal_access"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    CRASH = "crash"  # the worker died
    CUT_SHORT = "cut_short"  # so slow that the timing was stopped after its first launches
    NOT_TIMED = "not_timed"  # a row that is to be predicted


class KernelFacts(NamedTuple):
    """What the compiler reports of a kernel."""

    registers: int  # of a thread
    # Bytes of a thread that are stored to memory and loaded again, since there are too few
    # registers; each instruction of the code counts once.
    spill_stores: int
    spill_loads: int
    shared_bytes: int  # of a thread block
    instructions: int  # of the machine code


KERNEL_FACTS = KernelFacts._fields


@dataclass(frozen=True)
class Timing:
    """The result of timing one candidate on one problem, in microseconds.

    A timing has a time (`min_us`, `median_us` or both) or a `failure`, never both. `spread_us` is
    the interquartile range over `repeats` launches. `kernel` is known where the kernel was compiled
    to be launched directly (`collect --direct`).
    """

    min_us: float | None = None
    median_us: float | None = None
    spread_us: float | None = None
    repeats: int | None = None
    failure: Failure | None = None
    kernel: KernelFacts | None = None

    def __post_init__(self) -> None:
        for name in ("min_us", "median_us"):
            value = getattr(self, name)
            require(
                value is None
                or (isinstance(value, (int, float)) and not isinstance(value, bool)
                    and 0 < value <= MAX_US),
                f"A timing's {name} is {value!r}; it must be a positive number of microseconds, "
                "an hour at most.",
            )  # fmt: skip
        require(
            self.min_us is None or self.median_us is None or self.min_us <= self.median_us,
            f"A timing's min_us is {self.min_us!r}, more than its median_us, {self.median_us!r}.",
        )
        spread = self.spread_us
        require(
            spread is None or (isinstance(spread, (int, float)) and 0 <= spread <= MAX_US),
            f"A timing's spread_us is {spread!r}; it must be a number of microseconds from 0 up, "
            "an hour at most.",
        )
        require(
            self.repeats is None or (is_int(self.repeats) and 0 <= self.repeats <= _MAX_COUNT),
            f"A timing's repeats is {self.repeats!r}; it must be a whole number from 0 to "
            f"{_MAX_COUNT}.",
        )
        require(
            self.kernel is None or all(is_int(n) and 0 <= n <= _MAX_COUNT for n in self.kernel),
            f"A timing's kernel is {self.kernel!r}; it must have whole numbers from 0 to "
            f"{_MAX_COUNT}.",
        )
        if self.failure is not None:
            object.__setattr__(self, "failure", member(Failure, self.failure, "A timing's failure"))
        timed = self.min_us is not None or self.median_us is not None
        require(timed != (self.failure is not None), "A timing has either a time or a failure.")

    @property
    def time_us(self) -> float | None:
        """The time that is compared and learned: the minimum, which other work on the machine
        disturbs least; the median where there is no minimum; None where the candidate failed."""
        return self.min_us if self.min_us is not None else self.median_us
