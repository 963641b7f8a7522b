"""Eight writers and eight readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.soak import crowd


def test_eight_writers_and_eight_readers(tmp_path: Path, tries: Callable[..., int]) -> None:
    seconds = tries(quick=3, full=60)
    rows, reads = crowd.gather(tmp_path / "a.db", 8, 8, seconds=seconds, batches=1_000_000)
    print(f"{seconds} s: {rows} timings written, all of them read {reads} times")  # noqa: T201
