"""Processes that can be told apart, found and ended; a pid alone is soon another's.

All of it is read from /proc (see proc(5)). Where there is none, a process is known by its pid
and its host alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from diode_engine.store import Process

_PROC = Path("/proc")


def machine() -> str:
    """What a pid seen here is a number of: this boot of this machine, and this pid namespace,
    of which every container has its own."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def process(pid: int) -> Process:
    """The process that has this pid here and now."""
    stat = _stat(pid)
    started = None if stat is None else stat.started
    return Process(socket.gethostname(), machine(), pid, started)


def current() -> Process:
    return process(os.getpid())


def is_alive(known: Process) -> bool | None:
    """Whether it still runs; None where that cannot be seen from here, as it belongs to another
    machine or container, or to an earlier boot of this one."""
    if known.machine != machine():
        return None
    if known.started is None:
        try:
            os.kill(known.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
    stat = _stat(known.pid)
    return stat is not None and stat.started == known.started and stat.state not in "ZX"


def terminate(known: Process) -> None:
    """SIGTERM to this process, if it is still there. Raises PermissionError where it is another
    user's."""
    _signal(known, signal.SIGTERM)


def kill(known: Process) -> None:
    """SIGKILL to this process and to all that it started, in whatever session they are: a
    collection's workers have each their own. Raises PermissionError where it is another user's.
    """
    # The children are found before their parent dies, and die after it: it would replace them.
    family = _family(known)
    _signal(known, signal.SIGKILL)
    for member in family:
        with contextlib.suppress(PermissionError):
            _signal(member, signal.SIGKILL)


def _signal(known: Process, number: signal.Signals) -> None:
    if is_alive(known):
        with contextlib.suppress(ProcessLookupError):
            os.kill(known.pid, number)


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    """The fields 3, 4, 6 and 22 of proc_pid_stat(5); None where there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # what is before is the name, with any characters
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def _family(known: Process) -> list[Process]:
    """The descendants of a process, and who is in its session if it leads one."""
    there: dict[int, _Stat] = {}
    with contextlib.suppress(OSError):
        for entry in _PROC.iterdir():
            if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
                there[int(entry.name)] = stat
    found: dict[int, _Stat] = {}
    wanted = [known.pid]
    while wanted:
        parent = wanted.pop()
        for pid, stat in there.items():
            if pid != known.pid and pid not in found and parent in (stat.parent, stat.session):
                found[pid] = stat
                wanted.append(pid)
    return [Process(known.host, known.machine, pid, stat.started) for pid, stat in found.items()]
