"""Launching a loaded kernel on a problem of its class."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from diode_engine.collect.workers.driver import Driver, Loaded
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass, grid, serves

_CTYPES = {
    "u64": ctypes.c_uint64, "s64": ctypes.c_int64, "b64": ctypes.c_uint64,
    "u32": ctypes.c_uint32, "s32": ctypes.c_int32, "b32": ctypes.c_uint32,
}  # fmt: skip
WARP = 32  # threads
# Bytes that a kernel may write to besides its output. It uses at most two TMA descriptors of 128
# bytes for each multiprocessor.
MIN_SCRATCH = 1 << 20
# The device addresses of a problem's inputs, in the op's order, and then that of its output.
Place = tuple[int, ...]


class Launch:
    """A kernel bound to a problem: each call with a place and a stream launches it once.

    The arguments are packed when the object is made; a call sets the addresses and calls the
    driver. Give it the loaded kernel (`use`) before the first call. Not for several threads.
    """

    def __init__(
        self,
        driver: Driver,
        binary: Binary,
        cls: KernelClass,
        problem: Problem,
        *,
        multiprocessors: int,
        scratch: Callable[[int], int],
    ) -> None:
        """`scratch` returns the address of so many bytes that kernels may use, aligned to 256.

        Raises CollectionError where the kernel does not serve the problem."""
        if not serves(cls, problem):
            raise CollectionError(f"{cls.candidate} was not compiled for {problem}.")
        self.cls = cls
        self.binary = binary
        self._driver = driver
        self.grid = grid(cls, problem, multiprocessors)
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        scratch_at = scratch(max(MIN_SCRATCH, blocks * binary.scratch_bytes))
        extents = cls.extents
        values = {
            **{f"size_{dim}": getattr(problem, dim) // e.value for dim, e in extents.items()},
            "workspace": scratch_at,
            "global_scratch": scratch_at if binary.scratch_bytes else 0,
            "profile_scratch": 0,
        }
        self._arguments = {
            what: _CTYPES[kind](values.get(what, 0)) for what, kind in binary.arguments
        }
        tensors = [*problem.input_shapes(), "out"]
        self._place = (ctypes.c_uint64 * len(tensors))()  # each call sets it
        first, size = ctypes.addressof(self._place), ctypes.sizeof(ctypes.c_uint64)
        pointers = [
            first + size * tensors.index(what) if what in tensors else ctypes.addressof(value)
            for what, value in self._arguments.items()
        ]
        self._packed = (ctypes.c_void_p * len(pointers))(*pointers)
        self._head: tuple[ctypes.c_void_p | int, ...] = ()

    def use(self, loaded: Loaded) -> None:
        """Launches this loaded kernel from now on, which must be the binary's kernel."""
        binary = self.binary
        self._head = (
            loaded.function, *self.grid, WARP * binary.warps, 1, 1, binary.shared_bytes,
        )  # fmt: skip

    def __call__(self, place: Place, stream: int) -> None:
        """Raises DriverError where the driver refuses the launch. Errors of the kernel itself are
        reported by later calls."""
        self._place[:] = place  # type: ignore[call-overload]  # any sequence will do
        code = self._driver.launch_kernel(*self._head, stream, self._packed, None)
        if code:
            self._driver.check(code, "cuLaunchKernel")
