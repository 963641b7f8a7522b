"""Processes that were started for a collection, and how they are ended."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess

log = logging.getLogger(__name__)

# A process that waits in the kernel for a device cannot be killed before the driver returns, which
# may be never. So the wait has a limit.
PATIENCE_SECONDS = 10.0


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Makes the operating system kill this process when the thread that started it ends, also where
    the parent was killed or this process hangs. Otherwise it could go on unnoticed and keep its
    GPU."""
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
