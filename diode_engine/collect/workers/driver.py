"""The part of the CUDA driver that loads and launches kernels, through ctypes."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from diode_engine.core.timing import Failure
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.binary import Binary

# Numbers of cuda.h: CUfunction_attribute, CUdevice_attribute, CUfunc_cache.
_SHARED_SIZE_BYTES = 1
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
_PREFER_SHARED = 1
_WITHOUT_OPTING_IN = 48 * 1024

# CUresult → what it says of the kernel. Anything else is a launch error.
_FAILURES = {
    2: Failure.OUT_OF_MEMORY,
    700: Failure.ILLEGAL_ACCESS,
    701: Failure.OUT_OF_RESOURCES,  # too many registers or threads for a block
    715: Failure.ILLEGAL_ACCESS,  # an illegal instruction
    716: Failure.ILLEGAL_ACCESS,  # a misaligned address
    717: Failure.ILLEGAL_ACCESS,  # an address in the wrong space
}


class DriverError(Exception):
    """A call of the driver failed. `failure` says what that means for the kernel; after a `sticky`
    error the process cannot use the device any more."""

    def __init__(self, call: str, code: int, text: str, failure: Failure | None = None) -> None:
        super().__init__(f"CUDA error {code} in {call}: {text}")
        self.failure = failure or _FAILURES.get(code, Failure.LAUNCH_ERROR)
        # These errors destroy the process's CUDA context: all later calls fail too.
        self.sticky = code >= 700 and self.failure is not Failure.OUT_OF_RESOURCES


@dataclass(frozen=True)
class Loaded:
    """A kernel in the device's memory."""

    binary: Binary
    module: c_void_p
    function: c_void_p


class Driver:
    """Loads and launches kernels in the CUDA context that is current in the calling thread; that is
    torch's, after torch has used the device. `library` is libcuda, or a stand-in in tests."""

    def __init__(self, library: Any = None, device: int = 0) -> None:
        self._cuda = _libcuda() if library is None else library
        self._device = device
        self.launch_kernel = self._cuda.cuLaunchKernel

    def load(self, binary: Binary) -> Loaded:
        """Loads the kernel into the device's memory. Raises DriverError, with OUT_OF_RESOURCES
        where the device has too little shared memory for it."""
        module, function = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(module), binary.cubin)
        try:
            self._call("cuModuleGetFunction", byref(function), module, binary.name.encode())
            if binary.shared_bytes > _WITHOUT_OPTING_IN:
                # as Triton and Inductor do it when they load a kernel
                self._call("cuFuncSetCacheConfig", function, c_int(_PREFER_SHARED))
                most, static = c_int(), c_int()
                self._call(
                    "cuDeviceGetAttribute",
                    byref(most), c_int(_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), c_int(self._device),
                )  # fmt: skip
                self._call("cuFuncGetAttribute", byref(static), c_int(_SHARED_SIZE_BYTES), function)
                dynamic = most.value - static.value
                if binary.shared_bytes > dynamic:
                    text = f"{binary.shared_bytes} bytes of shared memory where {dynamic} are"
                    raise DriverError("cuFuncSetAttribute", 1, text, Failure.OUT_OF_RESOURCES)
                self._call(
                    "cuFuncSetAttribute",
                    function, c_int(_MAX_DYNAMIC_SHARED_SIZE_BYTES), c_int(dynamic),
                )  # fmt: skip
        except DriverError:
            self._call("cuModuleUnload", module)
            raise
        return Loaded(binary, module, function)

    def unload(self, loaded: Loaded) -> None:
        self._call("cuModuleUnload", loaded.module)

    def check(self, code: int, call: str) -> None:
        """Raises DriverError unless `code` is success."""
        if code:
            text = c_char_p()
            self._cuda.cuGetErrorString(c_int(code), byref(text))
            raise DriverError(call, code, (text.value or b"unknown").decode(errors="replace"))

    def _call(self, name: str, *args: Any) -> None:
        self.check(getattr(self._cuda, name)(*args), name)


@cache
def _libcuda() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CollectionError(f"The CUDA driver cannot be loaded: {error}.") from None
    library.cuModuleLoadData.argtypes = [c_void_p, c_char_p]
    library.cuLaunchKernel.argtypes = [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p]
    library.cuLaunchKernel.restype = c_int
    return library
