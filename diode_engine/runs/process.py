"""Processes: identified, found and ended. A pid alone is not enough, because it is used again.

All facts are read from /proc (see proc(5)). Where there is no /proc, a process is identified by its
pid and its host only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import NamedTuple

from diode_engine.store import Process

_PROC = Path("/proc")


def machine_id() -> str:
    """The namespace of a pid: this boot of this machine, and the pid namespace, of which each
    container has its own."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def find_process(pid: int) -> Process:
    """The process that has this pid on this machine at this moment."""
    stat = _stat(pid)
    started = None if stat is None else stat.started
    return Process(socket.gethostname(), machine_id(), pid, started)


def current_process() -> Process:
    """This process."""
    return find_process(os.getpid())


def is_alive(known: Process) -> bool | None:
    """Whether the process still runs; None where that cannot be seen, because it belongs to another
    machine or container, or to an earlier boot of this machine."""
    if known.machine != machine_id():
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
    """Sends SIGTERM to this process, if it still exists. Raises PermissionError where it is another
    user's."""
    _signal(known, signal.SIGTERM)


def kill(known: Process) -> None:
    """Sends SIGKILL to this process and to all processes that it has started, in whatever session
    they are: the workers of a collection have sessions of their own. Raises PermissionError where
    it is another user's."""
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


class Stat(NamedTuple):
    """What proc_pid_stat(5) says of a process."""

    state: str
    parent: int
    session: int
    started: int
    ticks: int  # of processor time, with that of the children that have ended
    threads: int
    pages: int  # in memory; those that processes share count in each


def _stat(pid: int, proc: Path | None = None) -> Stat | None:
    """None where there is no such process."""
    try:
        text = ((proc or _PROC) / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # what is before is the name, with any characters
    ticks = sum(map(int, fields[11:15]))
    return Stat(
        fields[0], int(fields[1]), int(fields[3]), int(fields[19]),
        ticks, int(fields[17]), int(fields[21]),
    )  # fmt: skip


def _family(known: Process) -> list[Process]:
    """The descendants of a process, and the members of its session if it leads one."""
    found = read_family(known.pid)
    found.pop(known.pid, None)
    return [Process(known.host, known.machine, pid, stat.started) for pid, stat in found.items()]


def read_family(pid: int, proc: Path | None = None) -> dict[int, Stat]:
    """The process of this pid, its descendants, and the members of its session if it leads one, by
    pid; nothing where there is no /proc."""
    there: dict[int, Stat] = {}
    with contextlib.suppress(OSError):
        for entry in (proc or _PROC).iterdir():
            if entry.name.isdigit() and (stat := _stat(int(entry.name), proc)) is not None:
                there[int(entry.name)] = stat
    found = {pid: there[pid]} if pid in there else {}
    wanted = [pid]
    while wanted:
        parent = wanted.pop()
        for other, stat in there.items():
            if other != pid and other not in found and parent in (stat.parent, stat.session):
                found[other] = stat
                wanted.append(other)
    return found
