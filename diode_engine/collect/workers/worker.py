"""The process that compiles candidates and times them on one GPU.

When it is ready, it sends the GPU's name and the environment over a connection. Then it answers a
SpaceRequest by a SpaceAnswer and a BatchRequest by Results, or either by a Refusal where Inductor
has no such problem. All messages are pickled. It may die at any moment.

    python -m diode_engine.collect.workers.worker FD
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from diode_engine.collect.executor import Refusal, Result, Results, SpaceAnswer, SpaceRequest
from diode_engine.collect.gpus import lock_of, name_of
from diode_engine.collect.processes import children
from diode_engine.collect.workers.inputs import empty_output, other_inputs, random_inputs, reference
from diode_engine.collect.workers.timer import Timer, failure_of, is_right, mean, spoil
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure, Timing
from diode_engine.inductor.lowering import kernels


@contextlib.contextmanager
def lock_gpu(lock: Path) -> Iterator[None]:
    """Holds the GPU's lock (see `gpus.lock_of`), so that no other worker times on the GPU. The
    operating system releases the lock if the process dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class ProblemOnGpu:
    """A problem with its operands on the GPU, and its candidates as Inductor offers them."""

    def __init__(self, problem: Problem, device: torch.device, lock: Path) -> None:
        self.problem = problem
        self._lock = lock
        self._stack = contextlib.ExitStack()
        boxes = self._stack.enter_context(kernels.graph_for(problem, device))
        try:
            offered = partial(kernels.offered, problem.op, boxes, fields=problem.op_fields)
            self.choices = offered(space="EXHAUSTIVE")
            self.default = offered(space="DEFAULT")
            self.choices |= {c: k for c, k in self.default.items() if c not in self.choices}
        except BaseException:
            self._stack.close()
            raise
        self._device = device
        self._tensors: list[torch.Tensor] | None = None

    def close(self) -> None:
        self._stack.close()
        self._tensors = None
        # A kernel is compiled for one problem, so nothing in the cache is needed again.
        shutil.rmtree(os.environ["TRITON_CACHE_DIR"], ignore_errors=True)

    def _prepare(self) -> list[torch.Tensor]:
        """Random inputs, an output, and the result to which a kernel's must be close."""
        if self._tensors is None:
            p = self.problem
            inputs = random_inputs(p, self._device)
            out = empty_output(p, self._device)
            self._tensors = [*inputs, out, reference(p, inputs)]
        return self._tensors

    def time(self, candidate: Candidate, timer: Timer) -> Result:
        """The timing of one candidate, and a sentence on what went wrong. Never raises because of
        the candidate."""
        try:
            choice = self.choices[candidate]
        except KeyError:
            return Timing(failure=Failure.COMPILE_ERROR), "Inductor does not offer it here"
        try:
            if self._tensors is None:
                with lock_gpu(self._lock):
                    self._prepare()
                    torch.cuda.synchronize()
            *inputs, out, right = self._prepare()
            launch = kernels.launchable(choice, inputs, out)
            with lock_gpu(self._lock):
                spoil(out)
                result = launch()
                result = result if isinstance(result, torch.Tensor) else out
                dtype = getattr(torch, self.problem.dtype)
                if not is_right(result, right, tf32=self.problem.allow_tf32, dtype=dtype):
                    return Timing(failure=Failure.WRONG_RESULT), "the result is wrong"
                others = other_inputs(self.problem, inputs)
                again = [kernels.launchable(choice, each, out) for each in others]
                return mean([timer.time(each) for each in (launch, *again)]), ""
        except Exception as error:  # noqa: BLE001  # whatever a kernel does is a result
            return Timing(failure=failure_of(error)), f"{type(error).__name__}: {error}"[:300]


TimeAll = Callable[[ProblemOnGpu, Sequence[Candidate]], Results]


def serve(connection: Connection, lock: Path, device: torch.device, time_all: TimeAll) -> None:
    """Answers requests until the connection closes; `time_all` times candidates."""
    connection.send((name_of(device.index), environment()))
    work: ProblemOnGpu | None = None
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        if work is None or work.problem != request.problem:
            if work is not None:
                work.close()
                work = None
            torch.cuda.empty_cache()
            try:
                work = ProblemOnGpu(request.problem, device, lock)
            except Exception as error:  # noqa: BLE001  # Inductor may refuse in any way
                connection.send(Refusal(f"{type(error).__name__}: {error}"))
                continue
        if isinstance(request, SpaceRequest):
            connection.send(SpaceAnswer(tuple(work.choices), tuple(work.default)))
        else:
            connection.send(time_all(work, request.candidates))


def prepare_process() -> tuple[torch.device, Path]:
    """Makes this process a worker's: it ends with its parent, stdout (to which compilers print) is
    stderr, and torch says nothing. Returns its GPU, and the file that locks the GPU."""
    children.end_with_parent()
    os.dup2(2, 1)
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    device = torch.device("cuda", torch.cuda.current_device())
    return device, lock_of(name_of(device.index))


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    device, lock = prepare_process()
    with lock_gpu(lock):
        timer = Timer(device)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(connection, lock, device, lambda work, asked: [work.time(c, timer) for c in asked])


if __name__ == "__main__":
    main()
