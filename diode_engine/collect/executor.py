"""What a collection asks, and what an executor promises that answers it.

A collection makes a conversation for each problem: a generator that yields requests and is sent
their answers. An executor has as many conversations at a time as it has workers, on this machine
(`local`) or on others (`ray_executor`), and asks for the next one when a worker has none.

Every executor promises: a request is answered once, by a worker on a GPU of the conversation's
environment; a batch's answer has each of its candidates at most once, each with a time or a
failure, and lacks some only where the problem kills its workers; a worker that dies, hangs or
talks nonsense costs the candidate that it was at and no other, and a machine that is lost costs
nothing, since what was asked of it is asked again; on a GPU one kernel is timed at a time; and
nothing goes on after the executor was left.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.timed_rows import TimedRows
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Candidate, Problem
from diode_engine.inductor.lowering.kernel_class import KernelClass


@dataclass(frozen=True)
class Host:
    """What a worker works on: a GPU by its number in the run and by its own name (see
    `gpus.name_of`), the software around it, and the name of its machine where there may be
    several."""

    gpu: int
    name: str
    environment: Environment
    node: str = ""


@dataclass(frozen=True)
class Offer:
    """Which candidates does Inductor offer for the problem?"""

    problem: Problem


@dataclass(frozen=True)
class Batch:
    """How long do these candidates take? `classes` are those whose binaries they need, where
    kernels are launched directly; all were ordered of the executor's compilers before."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    classes: tuple[KernelClass, ...] = ()


@dataclass(frozen=True)
class Offered:
    """The answer to an Offer: candidates as `protocol.pack_candidates` packs them, those of the
    EXHAUSTIVE and those of the DEFAULT space."""

    offered: bytes
    default: bytes
    workers_lost: int = 0


@dataclass(frozen=True)
class Refused:
    """Nothing more is answered for the problem, and why."""

    reason: str
    workers_lost: int = 0


@dataclass(frozen=True, eq=False)
class Timed:
    """The answer to a Batch: its timings, on which GPU, how that is, and whether it was throttled
    meanwhile."""

    rows: TimedRows
    gpu: int
    state: GpuState | None = None
    throttled: bool = False
    workers_lost: int = 0


class Pending(Protocol):
    """Something that a conversation waits for, as an order of compilers: yielded instead of a
    request, it is answered by READY when it is done."""

    @property
    def pending(self) -> bool: ...

    def result(self) -> None:
        """Raises CollectionError where it failed."""


@dataclass(frozen=True)
class Ready:
    """The answer to a Pending."""


READY = Ready()
Request = Offer | Batch | Pending
Answer = Offered | Refused | Timed | Ready
Conversation = Generator[Request, Answer, None]
# Gives the next conversation with such a host, or None if there is none left.
Conversations = Callable[[Host], Conversation | None]


class Compilers(Protocol):
    """Processes that compile kernels for one environment before they are timed."""

    def has(self, key: str | None) -> bool:
        """Whether nothing has to be compiled for the class of this key; None stands for what
        needs no binary."""

    def order(self, classes: Sequence[KernelClass]) -> Pending:
        """Has those compiled that were not yet."""


class Executor(Protocol):
    """Holds conversations; a context manager, whose end is that of all that it started."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """What a run's spec says of it."""

    @property
    def gpus(self) -> Sequence[int]:
        """The GPUs that are known to be used before any has spoken."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def run(self, conversations: Conversations) -> Iterator[None]:
        """Holds all conversations to their end; yields after every step and once a second at
        least, so that the caller can write and report. Raises CollectionError if there is
        nothing that answers."""

    def compilers(self, environment: Environment) -> Compilers | None:
        """None where each kernel is compiled by the worker that times it."""

    def states(self) -> Mapping[int, GpuState]:
        """How the GPUs are, as far as there is news."""
