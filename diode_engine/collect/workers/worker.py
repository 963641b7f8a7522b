"""The process that compiles candidates and times them on one GPU.

It gets requests over a connection (see `protocol`). It may die at any moment; then the last `begin`
that it sent says which candidate it was timing.

    python -m diode_engine.collect.workers.worker FD
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from diode_engine.collect.gpus import lock_of, name_of
from diode_engine.collect.processes import children, protocol
from diode_engine.collect.workers.inputs import empty_output, other_inputs, random_inputs, reference
from diode_engine.collect.workers.timer import Timer, failure_of, is_right, mean, spoil
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure, Timing
from diode_engine.inductor.lowering import kernels

TOGETHER_SECONDS = 0.05  # see `serve`
# These errors destroy the process's CUDA context: all later launches fail too.
STICKY = frozenset({Failure.ILLEGAL_ACCESS, Failure.LAUNCH_ERROR})


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

    def time(self, candidate: Candidate, timer: Timer) -> tuple[Timing, str]:
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


Answers = Callable[[ProblemOnGpu, list[Candidate]], Iterator[protocol.Message]]


def serve(
    connection: Connection,
    lock: Path,
    device: torch.device,
    answers: Answers,
    *,
    together: bool = False,
) -> None:
    """Answers requests until the connection closes; `answers` times candidates and yields messages.
    With `together`, messages are kept for up to TOGETHER_SECONDS and sent with those that follow:
    then nobody needs to know which candidate is being timed."""
    hello = {"environment": environment().to_dict(), "gpu": name_of(device.index)}
    connection.send_bytes(protocol.pack(hello))
    work: ProblemOnGpu | None = None
    while True:
        try:
            request = protocol.unpack(connection.recv_bytes())
        except EOFError:
            return
        problem = Problem.from_dict(request["problem"])
        if work is None or work.problem != problem:
            if work is not None:
                work.close()
                work = None
            torch.cuda.empty_cache()
            try:
                work = ProblemOnGpu(problem, device, lock)
            except Exception as error:  # noqa: BLE001  # Inductor may refuse in any way
                connection.send_bytes(
                    protocol.pack({"refused": f"{type(error).__name__}: {error}"})
                )
                continue
        if "candidates" not in request:
            answer: dict[str, Any] = {
                "offered": protocol.pack_candidates(work.choices),
                "default": protocol.pack_candidates(work.default),
            }
            connection.send_bytes(protocol.pack(answer))
            continue
        said: list[bytes] = []
        sent = time.monotonic()
        for message in answers(work, [Candidate.from_dict(c) for c in request["candidates"]]):
            said.append(protocol.pack(message))
            broken = message.get("failure") in STICKY
            late = time.monotonic() - sent > TOGETHER_SECONDS
            if not together or "begin" in message or broken or late:
                connection.send_bytes(b"".join(said))
                said, sent = [], time.monotonic()
            if broken:
                os._exit(1)  # another process is started
        connection.send_bytes(b"".join([*said, protocol.pack({"done": True})]))


def one_by_one(timer: Timer) -> Answers:
    """Answers that compile and time each candidate alone, as Inductor does."""

    def answers(work: ProblemOnGpu, candidates: list[Candidate]) -> Iterator[protocol.Message]:
        for index, candidate in enumerate(candidates):
            yield {"begin": index}
            yield protocol.timed(index, *work.time(candidate, timer))

    return answers


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
        serve(connection, lock, device, one_by_one(timer))


if __name__ == "__main__":
    main()
