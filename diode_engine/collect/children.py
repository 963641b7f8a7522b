"""Processes that were started for a collection, and their end."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess

log = logging.getLogger(__name__)

# A process that waits for a device in the kernel cannot be killed before the driver lets go of it,
# which may be never: nobody waits for that.
PATIENCE_SECONDS = 10.0


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Has this process killed when the thread that started it ends, also where that is killed and
    this one hangs: nobody else would know of it, and it holds its GPU."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills the process and all that it started; it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("Process %d cannot be killed; its GPU may need a reset.", process.pid)
