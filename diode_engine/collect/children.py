"""Processes that were started for a collection, and their end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess

log = logging.getLogger(__name__)

# A process that waits for a device in the kernel cannot be killed before the driver lets go of it,
# which may be never: nobody waits for that.
PATIENCE_SECONDS = 10.0


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills the process and all that it started; it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("Process %d cannot be killed; its GPU may need a reset.", process.pid)
