"""The cross columns of a block of rows, written by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from diode_engine.core.resources import Array

HUGE = 1e30  # larger values are cut to this, so that float32 does not overflow

# The order is that of the columns. Columns of the first group are written as plain values, and
# `take_logs` replaces all of them by their binary logarithms.
LOG2 = (
    "log2_tiles_m", "log2_tiles_n", "log2_tiles", "log2_waves", "log2_waves_resident",
    "log2_k_iterations", "log2_shared", "log2_accumulator", "log2_registers", "log2_in_flight",
    "log2_loads_a", "log2_loads_b",
    "log2_over_m", "log2_over_n", "log2_tile_intensity",
    "log2_compute_us", "log2_dram_us", "log2_l2_us", "log2_latency_us", "log2_issue_us",
    "log2_extra_us",
    "log2_base_us",
)  # fmt: skip
OTHERS = (
    "efficiency_m", "efficiency_n", "efficiency_k", "even_k", "fill", "fill_resident",
    "blocks_per_multiprocessor", "threads_share", "shared_share", "wgmma", "pipelined",
    "depth", "spilled", "compute_share", "dram_share", "l2_share", "latency_share",
)  # fmt: skip
NAMES = LOG2 + OTHERS
_PLACE: Mapping[str, int] = {name: place for place, name in enumerate(NAMES)}


class Rows:
    """Writes columns by name: rows[name] = values [n]. They go into `out` [NAMES, n], whose values
    are undefined before."""

    def __init__(self, out: Array) -> None:
        self._out = out

    def __setitem__(self, name: str, values: Array) -> None:
        self._out[_PLACE[name]] = values

    def take_logs(self) -> None:
        """Replaces the values of LOG2 by their binary logarithms; call it last."""
        logs = self._out[: len(LOG2)]
        np.minimum(logs, np.float32(HUGE), out=logs)
        np.log2(logs, out=logs)
