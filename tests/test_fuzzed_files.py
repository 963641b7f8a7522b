"""A few thousand of the files that tests/soak/test_fuzzed_files.py makes a million of."""

from __future__ import annotations

from pathlib import Path

from tests.soak import fuzzing


def test_every_file_is_read_or_refused(tmp_path: Path) -> None:
    fuzzing.check(fuzzing.fuzzed(2_800, tmp_path))
