"""Folders for as long as a process lives, also one that is killed.

Each holds a file that its process keeps locked; the kernel drops the lock when the process ends,
however it ends, and the next one to make such a folder removes what the dead have left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = "in-use"


class Scratch:
    """A new folder among the temporary files, removed by `close`."""

    def __init__(self, prefix: str) -> None:
        """Raises OSError where there is no room for it."""
        _remove_abandoned(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it has its name, so that nobody finds it unlocked.
        self._lock = os.open(self.path / "new", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _LOCK)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # closed already
            os.close(self._lock)


def _remove_abandoned(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # somebody else's, or gone meanwhile
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
