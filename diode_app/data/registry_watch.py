"""Whether the user's registry has changed, cheap enough to ask several times a second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_DEPTH = 2  # hardware, name: a version is a folder in the latter


def registry_version(root: Path) -> int:
    """A number that differs after each change: a new or removed model, an alias, a tag or a note (a
    hardware's file of those is replaced, which changes its folder). What cannot be read is left
    out."""
    return hash(tuple(_folders(str(root), _DEPTH)))


def _folders(folder: str, depth: int) -> Iterator[tuple[str, int]]:
    try:
        yield folder, os.stat(folder).st_mtime_ns  # noqa: PTH116  # no Path: hundreds of folders
        entries = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return
    if depth:
        for entry in entries:
            yield from _folders(entry, depth - 1)
