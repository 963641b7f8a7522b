"""The state of a GPU while kernels are timed on it: clock, temperature, power, utilisation and
memory, and whether its clock is throttled. Read through NVML, which comes with the driver; without
NVML nothing is known."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from dataclasses import dataclass
from typing import Any, Self

READ_SECONDS = 0.2  # between two reads of one GPU's state

_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
# nvml.h, nvmlClocksEventReasons
_REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
# A kernel that draws much power lowers the clock on any GPU. The other reasons have causes outside
# of the kernel; then its time is not representative.
THROTTLING = frozenset(_REASONS.values()) - {"sw_power_cap"}


class _Utilization(ctypes.Structure):
    """nvml.h, nvmlUtilization_t."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    """nvml.h, nvmlMemory_t."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


@dataclass(frozen=True)
class GpuState:
    """A GPU's state at one moment; None for what NVML does not tell. `utilisation` is the
    percentage of the last sample period in which the GPU worked, as NVML defines it."""

    clock_mhz: int | None
    temperature_c: int | None
    power_w: int | None
    held_back: tuple[str, ...] = ()  # the reasons why the clock is lower than it could be
    utilisation: int | None = None
    memory_bytes: int | None = None  # in use

    @property
    def throttled(self) -> bool:
        """Whether the clock is lowered for a reason other than the kernel's own power."""
        return not THROTTLING.isdisjoint(self.held_back)


class GpuWatch:
    """Asks NVML for the states of GPUs. A GPU has its number in this process; NVML numbers GPUs in
    another way (it ignores CUDA_VISIBLE_DEVICES and CUDA's order), so it is asked by name. Any
    thread may call `read` and `throttled_since`."""

    def __init__(self, library: Any) -> None:
        """`library` is NVML as ctypes loads it, already initialised; None: nothing is known."""
        self._library = library
        self._handles: dict[int, ctypes.c_void_p] = {}
        # By time.monotonic(): when each GPU's state was read, and when it was last throttled.
        self._read: dict[int, float] = {}
        self._throttled: dict[int, float] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls) -> Self:
        """A watch, which knows nothing where there is no NVML."""
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                return cls(library)
        return cls(None)

    def add(self, gpu: int, name: str) -> None:
        """Watches the GPU of this name (see `gpus.name_of`), if NVML knows it."""
        if self._library is None or gpu in self._handles:
            return
        handle = ctypes.c_void_p()
        for prefix in ("GPU-", "MIG-"):
            full = ctypes.c_char_p(f"{prefix}{name}".encode())
            if not self._library.nvmlDeviceGetHandleByUUID(full, ctypes.byref(handle)):
                self._handles[gpu] = handle
                return

    def add_all(self) -> int:
        """Watches all GPUs of this machine, by NVML's numbers; returns how many there are."""
        count = self._ask("nvmlDeviceGetCount_v2", ctypes.c_uint()) or 0
        for gpu in range(count):
            handle = ctypes.c_void_p()
            if not self._library.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(handle)):
                self._handles[gpu] = handle
        return count

    def read(self, gpu: int) -> GpuState | None:
        """The GPU's state now; None where it is not known, or was read less than READ_SECONDS
        ago."""
        with self._lock:
            now = time.monotonic()
            if now - self._read.get(gpu, -READ_SECONDS) < READ_SECONDS:
                return None
            self._read[gpu] = now
            state = self.state(gpu)
            if state is not None and state.throttled:
                self._throttled[gpu] = now
            return state

    def throttled_since(self, gpu: int, since: float) -> bool:
        """Whether a state that was read since then (by time.monotonic()), or just before, was
        throttled."""
        with self._lock:  # a state that another thread reads now counts, too
            return self._throttled.get(gpu, -1.0) >= since - READ_SECONDS

    def state(self, gpu: int) -> GpuState | None:
        """The GPU's state now; None where NVML does not know the GPU."""
        handle = self._handles.get(gpu)
        if handle is None:
            return None
        power = self._ask("nvmlDeviceGetPowerUsage", ctypes.c_uint(), handle)
        reasons = self._ask(
            "nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong(), handle
        )
        return GpuState(
            clock_mhz=self._ask(
                "nvmlDeviceGetClockInfo", ctypes.c_uint(), handle, ctypes.c_int(_CLOCK_SM)
            ),
            temperature_c=self._ask(
                "nvmlDeviceGetTemperature", ctypes.c_uint(), handle, ctypes.c_int(_TEMPERATURE_GPU)
            ),
            power_w=None if power is None else power // 1000,
            held_back=tuple(name for bit, name in _REASONS.items() if (reasons or 0) & bit),
            utilisation=self._ask(
                "nvmlDeviceGetUtilizationRates", _Utilization(), handle, part="gpu"
            ),
            memory_bytes=self._ask("nvmlDeviceGetMemoryInfo", _Memory(), handle, part="used"),
        )

    def _ask(self, function: str, out: Any, *args: Any, part: str = "value") -> int | None:
        """The number that the NVML function writes into `out`, or into a `part` of a structure;
        None where this driver or GPU does not support the function."""
        try:
            failed = getattr(self._library, function)(*args, ctypes.byref(out))
        except AttributeError:
            return None
        return None if failed else int(getattr(out, part))
