"""Which timings were disturbed by other work on the GPU, or by throttling."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from diode_engine.collect.gpu_state import GpuState
from diode_engine.core.table import TimingTable
from diode_engine.store import Store

# A timing is disturbed where its median is more than so many times its shortest launch. The
# launches of a kernel that is alone on a GPU differ little: of the shipped timings with at least
# _MIN_REPEATS launches, one in a thousand has a ratio of 1.16 or more.
DISTURBED = 1.3
_MIN_REPEATS = 6
# The limits for a GPU that nobody uses: no work, and the driver's memory alone.
_IDLE_PERCENT = 10
_IDLE_BYTES = 4 << 30


def find_disturbed(table: TimingTable) -> npt.NDArray[np.bool_]:
    """[n] whether the launches of a timing differ by more than on a GPU without other work."""
    with np.errstate(invalid="ignore"):
        ratio = table.median_us / table.min_us
    uneven: npt.NDArray[np.bool_] = (ratio > DISTURBED) & (table.repeats >= _MIN_REPEATS)
    return uneven


def find_throttled(store: Store, table: TimingTable) -> npt.NDArray[np.bool_]:
    """[n] whether a timing was taken while a collection saw its GPU throttled (such timings are in
    runs of their own)."""
    runs = [run.id for run in store.runs() if "throttled_of" in run.spec]
    taken = {row for run in runs for row in _rows(store.read(run=run))}
    if not taken:
        return np.zeros(len(table), np.bool_)
    return np.array([row in taken for row in _rows(table)], np.bool_)


def undisturbed_rows(store: Store, table: TimingTable, hardware: str, torch: str) -> TimingTable:
    """The timings on this kind of GPU, with this version of torch, that were not disturbed."""
    table = table.in_environments(lambda e: e.hardware.is_called(hardware) and e.torch == torch)
    return table.take(~(find_disturbed(table) | find_throttled(store, table)))


def count_disturbed(store: Store, hardware: str) -> int:
    """How many of the timings on this kind of GPU, of any run, were disturbed."""
    table = store.read(hardware=hardware)
    return int((find_disturbed(table) | find_throttled(store, table)).sum())


def _rows(table: TimingTable) -> Iterable[tuple[str, str, float, float]]:
    for i in range(len(table)):
        yield (
            table.problems[table.problem[i]].key, table.candidates[table.candidate[i]].key,
            float(np.nan_to_num(table.min_us[i])), float(np.nan_to_num(table.median_us[i])),
        )  # fmt: skip


def in_use(state: GpuState | None) -> str | None:
    """The sign, as a clause, that somebody else uses a GPU on which nothing of this process runs;
    None where there is no sign, or the state is not known."""
    if state is None:
        return None
    if (state.utilisation or 0) >= _IDLE_PERCENT:
        return f"it was {state.utilisation} % busy"
    if (state.memory_bytes or 0) >= _IDLE_BYTES:
        return f"{(state.memory_bytes or 0) / 1e9:.1f} GB of its memory were in use"
    return None
