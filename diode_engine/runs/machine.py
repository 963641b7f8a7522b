"""What a run uses of its machine while it works, from /proc (see proc(5)). Without /proc, as on
macOS, nothing of this is known."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diode_engine.runs.process import Stat, read_family

MAX_SAMPLES = 64  # of a run; when there are more, every second one is dropped
_MIN_SECONDS = 0.2  # between samples: /proc counts processor time in hundredths of a second
_PEAKS = ("cpu", "memory_bytes", "processes", "threads")


class MachineWatch:
    """Samples the processor time, memory, processes and threads of this process with all that it
    has started, and of the whole machine. For one thread at a time."""

    def __init__(self, *, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic):
        self._proc, self._clock = proc, clock
        self._began = self._at = clock()
        self._used = self._used_before = 0.0  # processor seconds of the run
        self._ticks = (0, 0)  # of the machine: at work, in all
        self._state: dict[str, Any] | None = None  # the latest one
        self._peak: dict[str, float] = {}
        self._samples: list[list[float | None]] = []
        self._every, self._seen = 1, 0  # one of so many states becomes a sample

    def sample(self) -> None:
        """Takes note of the present state; does nothing right after the sample before."""
        now = self._clock()
        if self._state is not None and now - self._at < _MIN_SECONDS:
            return
        try:
            family = list(read_family(os.getpid(), self._proc).values())
            ticks, memory = _machine_ticks(self._proc), _machine_memory(self._proc)
            load = os.getloadavg()[0]
        except (OSError, ValueError, KeyError, IndexError):
            return  # there is no /proc, or none of this form
        if family:
            self._note(now, family, ticks, memory, load)

    def _note(
        self, now: float, family: list[Stat], ticks: tuple[int, int], memory: tuple[int, int],
        load: float,
    ) -> None:  # fmt: skip
        used = sum(stat.ticks for stat in family) / os.sysconf("SC_CLK_TCK")
        cores = os.cpu_count() or 1
        run = machine = None
        if self._state is None:
            self._used_before = used
        else:
            # Less than before: a process has ended whose parent had ended already.
            run = 100 * max(0.0, used - self._used) / (now - self._at) / cores
            worked, passed = ticks[0] - self._ticks[0], ticks[1] - self._ticks[1]
            machine = 100 * worked / passed if passed > 0 else None
        self._at, self._used, self._ticks = now, used, ticks
        total, available = memory
        self._state = {
            "cores": cores,
            "cpu": None if run is None else round(min(100.0, run), 1),
            "cpu_machine": None if machine is None else round(machine, 1),
            "cpu_seconds": round(max(0.0, used - self._used_before), 2),
            "memory_bytes": sum(stat.pages for stat in family) * os.sysconf("SC_PAGE_SIZE"),
            "memory_machine_bytes": total - available,
            "memory_total_bytes": total,
            "processes": len(family),
            "threads": sum(stat.threads for stat in family),
            "load": round(load, 2),
        }
        for name in _PEAKS:
            if (value := self._state[name]) is not None:
                self._peak[name] = max(self._peak.get(name, 0), value)
        self._add_sample(now - self._began)

    def _add_sample(self, seconds: float) -> None:
        state = self._state
        assert state is not None
        if self._seen % self._every == 0:
            memory = (state["memory_bytes"], state["memory_machine_bytes"])
            used = (round(value / 1e9, 2) for value in memory)
            self._samples.append([round(seconds, 1), state["cpu"], state["cpu_machine"], *used])
        self._seen += 1
        if len(self._samples) > MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._every *= 2

    def to_dict(self) -> dict[str, Any] | None:
        """The latest state, the peaks, and samples over the run (docs/runs.md has the fields); None
        where nothing is known."""
        state = self._state
        if state is None:
            return None
        return {**state, "peak": dict(self._peak), "samples": list(self._samples)}


def _machine_ticks(proc: Path) -> tuple[int, int]:
    """The processors' time since the boot, at work and in all, in clock ticks."""
    line = (proc / "stat").read_text().partition("\n")[0]
    user, nice, system, idle, waiting, *rest = map(int, line.split()[1:9])
    worked = user + nice + system + sum(rest)
    return worked, worked + idle + waiting


def _machine_memory(proc: Path) -> tuple[int, int]:
    """The machine's memory in bytes, in all and available."""
    lines = (proc / "meminfo").read_text().splitlines()
    sizes = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    return sizes["MemTotal"] * 1024, sizes["MemAvailable"] * 1024
