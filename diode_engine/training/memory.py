"""How much memory is free."""

from __future__ import annotations

import contextlib
from pathlib import Path

_SYSTEM = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")  # of a container, as it sees its own


def available_bytes(system: Path = _SYSTEM, group: Path = _GROUP) -> int:
    """The memory that new processes can take without swapping: the machine's, and no more than the
    container's limit leaves. Without end where the system does not say."""
    free = [1 << 62]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = system.read_text().splitlines()
        free += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    with contextlib.suppress(OSError, ValueError):  # no limit reads "max"
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        # Files that were read count as used until something else needs the memory.
        free.append(most - used + _inactive(group / "memory.stat"))
    return max(0, min(free))


def _inactive(stat: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in stat.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "inactive_file":
                return int(value)
    return 0
