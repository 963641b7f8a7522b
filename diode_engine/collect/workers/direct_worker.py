"""The process that times compiled kernels on one GPU, many in turn.

It takes the binaries from a folder. Compilers (see `compiler_pool`) have put them there before it
is asked. A candidate that is more than one Triton kernel, or that could not be compiled for a
reason that is not its own fault, is compiled and timed as in `worker`.

    python -m diode_engine.collect.workers.direct_worker BINARIES FD
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import torch

from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.executor import Result, Results
from diode_engine.collect.workers.direct_timer import DirectTimer, TimedKernel
from diode_engine.collect.workers.driver import Driver, DriverError, Loaded
from diode_engine.collect.workers.inputs import reference
from diode_engine.collect.workers.launch import Launch, Place
from diode_engine.collect.workers.launch_queue import Launching
from diode_engine.collect.workers.operands import Operands, Pools
from diode_engine.collect.workers.timer import (
    FLUSH_BYTES,
    Timer,
    failure_of,
    max_error,
    spoil,
    within,
)
from diode_engine.collect.workers.worker import ProblemOnGpu, lock_gpu, prepare_process, serve
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure, Timing
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass, shared_classes

MAX_LOADED = 2048  # kernels kept in the device's memory, some 100 KB each

T = TypeVar("T")
_LibraryCall = Callable[..., object]
# A candidate that is ready to be timed; None: it is timed alone, as in `worker`.
_Prepared = Launch | _LibraryCall | Unbuilt | None


class _ProblemData:
    """A problem's operands, the result that its kernels must compute, and its best time so far."""

    def __init__(self, problem: Problem, pools: Pools) -> None:
        self.problem = problem
        self.operands = Operands(problem, pools)
        self.place = self.operands.next()
        inputs, _ = self.operands.tensors(self.place)
        self.reference = reference(problem, inputs)
        self.max_error = max_error(
            self.reference, tf32=problem.allow_tf32, dtype=getattr(torch, problem.dtype)
        )
        self.best_us: float | None = None


class Bench:
    """Times batches of candidates on one GPU; it holds the GPU's `lock` while it times."""

    def __init__(
        self,
        device: torch.device,
        lock: Path,
        binaries: Binaries,
        driver: Driver,
    ) -> None:
        hardware = binaries.environment.hardware
        self._device = device
        self._lock = lock
        self._binaries = binaries
        self._multiprocessors = hardware.multiprocessors
        self._driver = driver
        self._pools = Pools(device, hardware.l2_bytes)
        self._timer = DirectTimer(device, hardware.clock_mhz, FLUSH_BYTES)
        self._timer_alone: Timer | None = None
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        # All scratch memory that was ever allocated: a kernel's arguments may point into any of it.
        self._scratches: list[torch.Tensor] = []
        self._data: _ProblemData | None = None

    def time_all(self, work: ProblemOnGpu, candidates: Sequence[Candidate]) -> Results:
        """The candidates' results, None for those that cannot be timed beside others.

        If one of several candidates breaks the device, the process ends. Then another one is asked
        for the candidates one by one, to find out which one it was.
        """
        alone = len(candidates) == 1
        try:
            classes = shared_classes(work.problem, candidates)
            pairs = zip(candidates, classes, strict=True)
            prepared = [self._prepare(work, candidate, cls) for candidate, cls in pairs]
            with lock_gpu(self._lock):
                outcomes = self._retry_with_room(lambda: self._time_in_turn(work.problem, prepared))
                self._unload_least_used(MAX_LOADED)
        except torch.OutOfMemoryError as error:
            failed: Result = Timing(failure=Failure.OUT_OF_MEMORY), str(error)[:300]
            return [failed] * len(candidates)
        except Exception as error:  # noqa: BLE001  # whatever a kernel does is a result
            if not alone:
                os._exit(1)
            return [(Timing(failure=failure_of(error)), str(error)[:300])]
        results = [(_timing(x), "") if isinstance(x, TimedKernel) else x for x in outcomes]
        if alone and results == [None]:
            if self._timer_alone is None:
                with lock_gpu(self._lock):
                    self._timer_alone = Timer(self._device)
            return [work.time(candidates[0], self._timer_alone)]
        return results

    def _retry_with_room(self, step: Callable[[], T]) -> T:
        """The result of the step. Where the device has too little memory (other processes may have
        taken it), this process frees all memory that it does not need and tries the step once
        more."""
        try:
            return step()
        except (torch.OutOfMemoryError, DriverError) as error:
            if isinstance(error, DriverError) and error.failure is not Failure.OUT_OF_MEMORY:
                raise
        self._free_memory()
        try:
            return step()
        except torch.OutOfMemoryError:
            self._free_memory()
            raise

    def _free_memory(self) -> None:
        self._data = None
        self._unload_least_used(0)
        self._pools.clear()

    def _time_in_turn(
        self, problem: Problem, prepared: list[_Prepared]
    ) -> list[TimedKernel | Result | None]:
        """For each candidate its kernel with its times, its failure, or None where it has to be
        timed alone. Raises where no single candidate can be blamed for an error."""
        data = self._data
        if data is None or data.problem != problem:
            self._data = None  # its reference may be large
            data = self._data = _ProblemData(problem, self._pools)
        outcomes: list[TimedKernel | Result | None] = [None] * len(prepared)
        timed_kernels: dict[int, TimedKernel] = {}
        for index, one in enumerate(prepared):
            if isinstance(one, Unbuilt):
                if one.failure is not None:
                    outcomes[index] = Timing(failure=one.failure), one.reason
                continue
            if one is None:
                continue
            launch: Launching
            if isinstance(one, Launch):
                launch = one
                try:
                    one.use(self._load(one))
                except DriverError as error:
                    if error.sticky or error.failure is Failure.OUT_OF_MEMORY:
                        raise
                    outcomes[index] = Timing(failure=error.failure), str(error)
                    continue
            else:
                launch = _library_launch(one, data.operands)
            outcomes[index] = timed_kernels[index] = TimedKernel(launch)
        for index, failure, reason in self._check_results(timed_kernels, data):
            outcomes[index] = Timing(failure=failure), reason
            del timed_kernels[index]
        self._timer.time_in_turn(list(timed_kernels.values()), data.operands, data.best_us)
        known = [] if data.best_us is None else [data.best_us]
        data.best_us = min([*known, *(c.best for c in timed_kernels.values())], default=None)
        return outcomes

    def _check_results(
        self, timed_kernels: dict[int, TimedKernel], data: _ProblemData
    ) -> list[tuple[int, Failure, str]]:
        """Launches each kernel once and notes its time. Returns (index, failure, reason) for those
        with a wrong result and those that cannot be launched."""
        failed: list[tuple[int, Failure, str]] = []
        left = list(timed_kernels.items())
        while left:
            places, outs = data.operands.side_by_side(data.place, len(left))
            some, left = left[: len(places)], left[len(places) :]
            spoil(outs)
            notes: dict[int, Callable[[], None]] = {}
            for (index, timed_kernel), place in zip(some, places, strict=True):
                try:
                    notes[index] = self._timer.once(timed_kernel, place)
                except DriverError as error:
                    if error.sticky or error.failure is Failure.OUT_OF_MEMORY:
                        raise
                    failed.append((index, error.failure, str(error)))
            all_right = within(outs, data.reference, data.max_error).tolist()
            for (index, _), right in zip(some, all_right, strict=True):
                if index in notes:
                    notes[index]()
                    if not right:
                        failed.append((index, Failure.WRONG_RESULT, "the result is wrong"))
        return failed

    def _prepare(
        self, work: ProblemOnGpu, candidate: Candidate, cls: KernelClass | None
    ) -> _Prepared:
        """The candidate, as far as it can be prepared without the device; None where it has to be
        timed alone."""
        choice = work.choices.get(candidate)
        if choice is None:
            return Unbuilt(Failure.COMPILE_ERROR, "Inductor does not offer it here")
        if cls is None:
            return kernels.library_call(choice)
        loaded = self._loaded.get(cls.key)
        binary = self._binaries.get(cls) if loaded is None else loaded.binary
        if not isinstance(binary, Binary):
            return binary
        return Launch(
            self._driver,
            binary,
            cls,
            work.problem,
            multiprocessors=self._multiprocessors,
            scratch=self._scratch_address,
        )

    def _load(self, launch: Launch) -> Loaded:
        """The kernel, loaded. Call this only while the GPU's lock is held: loading stalls the
        kernels of other processes by about 300 µs."""
        key = launch.cls.key
        loaded = self._loaded.pop(key, None)
        if loaded is None:
            loaded = self._driver.load(launch.binary)
        self._loaded[key] = loaded  # at the end, so that it is unloaded last
        return loaded

    def _unload_least_used(self, most: int) -> None:
        """Unloads the least recently used kernels, so that at most `most` stay."""
        while len(self._loaded) > most:
            _, loaded = self._loaded.popitem(last=False)
            self._driver.unload(loaded)

    def _scratch_address(self, nbytes: int) -> int:
        """The address of `nbytes` or more that kernels may use. Memory is rarely allocated:
        the GPU's lock is not held here, and an allocation may stall other processes' launches."""
        if not self._scratches or self._scratches[-1].nbytes < nbytes:
            scratch = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
            self._scratches.append(scratch)
        return self._scratches[-1].data_ptr()


def _timing(timed_kernel: TimedKernel) -> Timing:
    """The kernel's timing, with the compiler's facts where the kernel is not a library's."""
    launch = timed_kernel.launch
    kernel = launch.binary.facts if isinstance(launch, Launch) else None
    return replace(timed_kernel.timing(), kernel=kernel)


def _library_launch(library: _LibraryCall, operands: Operands) -> Launching:
    """A library's call as a function of a place."""

    def call(place: Place, _: int) -> None:
        inputs, out = operands.tensors(place)
        library(*inputs, out=out)

    return call


def main() -> None:
    root, connection = Path(sys.argv[1]), Connection(int(sys.argv[2]))
    device, lock = prepare_process()
    with lock_gpu(lock):
        torch.cuda.synchronize(device)
        driver = Driver(device=device.index)
        bench = Bench(device, lock, Binaries(root, environment()), driver)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(connection, lock, device, bench.time_all)


if __name__ == "__main__":
    main()
