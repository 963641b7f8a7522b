"""The format of dataset files: its names, versions and suffixes (docs/dataset-format.md describes
it)."""

from __future__ import annotations

from pathlib import Path

from diode_engine.errors import DatasetError

FORMAT = "diode-dataset"
VERSION = 1
PACKED_VERSION = 2  # of files whose timings are packed columns (see `packed`)
PACKED = ".packed.zst"
SUFFIXES = (".json", ".msgpack", ".json.zst", ".msgpack.zst", PACKED)
TIMES = ("min_us", "median_us")
COLUMNS = ("candidate", "min_us", "median_us", "spread_us", "repeats", "failure")  # of a group


def suffix_of(path: Path) -> str:
    """The dataset suffix of a file's name. Raises DatasetError where it has none."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.endswith(suffix):
            return suffix
    raise DatasetError(f"{path} is not a dataset file: its name must end in {', '.join(SUFFIXES)}.")
