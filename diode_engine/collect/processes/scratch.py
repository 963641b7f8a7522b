"""Folders that are removed when their process ends, also when it is killed.

Each holds a file that its process keeps locked. The kernel releases the lock when the process ends;
the next process that makes such a folder removes those without a lock.
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
    """A new folder for temporary files; `close` removes it, and may be called again."""

    def __init__(self, prefix: str) -> None:
        """Raises OSError where it cannot be made."""
        _remove_abandoned(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # The file is locked before it gets the name that others look for.
        self._lock = (self.path / "new").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / _LOCK)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(prefix: str) -> None:
    """Removes the folders with this prefix whose processes have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or gone meanwhile
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
