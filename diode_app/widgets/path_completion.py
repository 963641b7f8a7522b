"""Paths as a person types them."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

_MAX_ENTRIES = 2000  # entries of a folder that are looked at


def complete_path(given: str, cursor: int) -> list[str]:
    """Return the lines that `given` can be completed to: the path at its end by one name. A
    folder's name ends in a slash. A line may have several paths with spaces between."""
    before, blank, path = given[:cursor].rpartition(" ")
    folder, _, start = path.rpartition("/")
    if not path:
        return []
    where = Path(f"{folder}/" if "/" in path else ".").expanduser()
    try:
        with os.scandir(where) as entries:
            names = sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, _MAX_ENTRIES)
                if entry.name.startswith(start)
                and " " not in entry.name
                and (start.startswith(".") or not entry.name.startswith("."))
            )
    except (OSError, RuntimeError):  # no such folder, or no such user's home
        return []
    kept = f"{folder}/" if "/" in path else ""
    return [f"{before}{blank}{kept}{name}" for name in names]


def existing_file(given: str) -> str | None:
    """Return a check: the path of an existing file."""
    path = Path(given).expanduser()
    if path.is_dir():
        return f"{path} is a folder; give a file in it."
    return None if path.is_file() else f"There is no file {path}."
