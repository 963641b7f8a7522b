"""The requests of a collection, and the interface of the executors that answer them.

A collection makes a session for each problem: a generator that yields requests and is sent
their answers. An executor holds as many sessions at a time as it has workers, on this machine
(`local`) or on others (`cluster`). When a worker is free, it asks for the next session.

Every executor promises:

- A request is answered once, by a worker on a GPU of the session's environment.
- The answer to a batch has each of its candidates at most once, each with a time or a failure.
  Candidates are missing only where the problem kills its workers.
- A worker that dies, hangs or sends nonsense costs the candidate that it was timing and no other.
- A machine that is lost costs nothing: its requests go to other machines.
- On a GPU one kernel is timed at a time.
- Nothing of it runs on after the executor was left.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.orders import Compilers
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Timing
from diode_engine.inductor.lowering.kernel_class import KernelClass


@dataclass(frozen=True)
class Host:
    """The GPU that a worker times on."""

    gpu: int  # its number in the run
    name: str  # its own name (see `gpus.name_of`)
    environment: Environment
    node: str = ""  # the name of its machine, where there may be several


@dataclass(frozen=True)
class SpaceRequest:
    """Asks: which candidates does Inductor offer for the problem?"""

    problem: Problem


@dataclass(frozen=True)
class BatchRequest:
    """Asks: how long do these candidates take? Where kernels are launched directly, `classes` are
    the kernel classes of the candidates; the session has ordered them from the executor's
    compilers before."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    classes: tuple[KernelClass, ...] = ()


@dataclass(frozen=True)
class SpaceAnswer:
    """The answer to a SpaceRequest: the candidates of the EXHAUSTIVE and of the DEFAULT space."""

    offered: tuple[Candidate, ...]
    default: tuple[Candidate, ...]


@dataclass(frozen=True)
class Refusal:
    """The answer where a request cannot be served; the session should give the problem up."""

    reason: str
    workers_lost: int = 0


@dataclass(frozen=True, eq=False)
class BatchAnswer:
    """The answer to a BatchRequest: (place in the batch, timing) of its candidates."""

    timings: tuple[tuple[int, Timing], ...]
    gpu: int  # the number of the GPU that timed it
    state: GpuState | None = None  # of the GPU, where it was read
    throttled: bool = False  # whether the GPU was throttled meanwhile
    workers_lost: int = 0


Result = tuple[Timing, str]  # and what went wrong, as a sentence
# What a worker process answers to a BatchRequest: for each candidate its result, or None where the
# process has to be asked for this candidate alone.
Results = list[Result | None]

# A list has what a session waits for: the classes that it has ordered from compilers. It is
# yielded in place of a request, and answered by None when all of them are done.
Request = SpaceRequest | BatchRequest | list[Future[None]]
Answer = SpaceAnswer | Refusal | BatchAnswer | None
Session = Generator[Request, Answer, None]
# Gives a worker on this host its next session, or None if there is none left.
Sessions = Callable[[Host], Session | None]


class Executor(AbstractContextManager[Any], Protocol):
    """Holds sessions. Leaving the context ends everything that it started."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """What a run's spec says about the executor."""

    @property
    def gpus(self) -> Sequence[int]:
        """The GPUs that will be used, as far as this is known before a worker has started."""

    def run(self, sessions: Sessions) -> Iterator[None]:
        """Holds all sessions to their end. Yields after every step and at least once a
        second, so that the caller can write and report. Raises CollectionError where no worker
        can be had."""

    def compilers(self, environment: Environment) -> Compilers | None:
        """The compilers for this environment; None where each kernel is compiled by the worker that
        times it."""

    def states(self) -> Mapping[int, GpuState]:
        """The states of GPUs that were read since the last call, by the GPUs' numbers."""


def environment_of(executor: Executor) -> Environment:
    """The GPU and the software of the first of its workers that is ready. The executor is started
    and ended for that. Raises CollectionError where no worker can be had."""
    found: list[Environment] = []

    def no_session(host: Host) -> None:
        found.append(host.environment)

    with executor:
        for _ in executor.run(no_session):
            if found:
                break
    return found[0]
