"""What the cross columns need of a device, as float32."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from diode_engine.core.hardware import Hardware


class Device(NamedTuple):
    """The rates and sizes of a device."""

    sms: np.float32
    bandwidth: np.float32  # of DRAM, bytes a microsecond
    l2_bandwidth: np.float32  # bytes a microsecond
    l2_bytes: np.float32  # the part of L2 that operands can fill
    shared_bytes: np.float32  # of a multiprocessor
    registers: np.float32  # of a multiprocessor
    clock_mhz: np.float32

    @classmethod
    @lru_cache(maxsize=16)
    def make(cls, hardware: Hardware) -> Device:
        bandwidth = np.float32(max(hardware.memory_gb_s * 1e3, 1.0))
        return cls(
            sms=np.float32(max(hardware.multiprocessors, 1)),
            bandwidth=bandwidth,
            l2_bandwidth=bandwidth * np.float32(_L2_TIMES_DRAM),
            l2_bytes=np.float32(_L2_OF_OPERANDS * hardware.l2_bytes),
            shared_bytes=np.float32(hardware.shared_bytes_multiprocessor or 1 << 20),
            registers=np.float32(hardware.registers_multiprocessor or 1 << 16),
            clock_mhz=np.float32(max(hardware.clock_mhz, 1)),
        )


_L2_TIMES_DRAM = 1.4  # the bandwidth of L2 divided by that of DRAM
_L2_OF_OPERANDS = 0.8  # the share of L2 that holds operands; the rest holds the output
