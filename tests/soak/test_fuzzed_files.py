"""Every file that a stranger may hand over is read as a valid object or refused with a sentence, in
bounded time and memory, whatever is in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.soak import fuzzing


def test_every_file_is_read_or_refused(tries: Callable[..., int], tmp_path: Path) -> None:
    processes = len(os.sched_getaffinity(0))
    found = fuzzing.fuzzed(tries(quick=5_600, full=1_000_000), tmp_path, processes)
    print(found)  # noqa: T201
    fuzzing.check(found)
