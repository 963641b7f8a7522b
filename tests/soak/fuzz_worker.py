"""Reads fuzzed files, in a process whose memory and time are bounded.

    python -m tests.soak.fuzz_worker PLACE JOBS

JOBS is JSON, [[kind, number of the first input, count], …]. PLACE is a file of 16 bytes with the
job's place and the number of the input that is being read: if the process dies, that one ended it.
An input is made from its kind and number alone. Writes a JSON line a job: how many were read and
refused, the slowest, the defects.
"""

from __future__ import annotations

import json
import logging
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import click

from diode_engine.errors import DiodeError
from tests.soak.kinds import KINDS

SECONDS = 10.0  # of a processor, for one input; the process is ended then
BYTES = 1 << 30  # of address space, for one input: more than the process has at its begin
SHOWN = 20  # defects; more are counted


def made(kind: str, number: int) -> bytes:
    """The input of this number."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # what is nested deeply must be written as well
    try:
        return KINDS[kind].make(random.Random(f"{kind}/{number}"))
    finally:
        sys.setrecursionlimit(usual)


def complaint(error: Exception) -> str | None:
    """What is wrong with a refusal; None where it is a sentence that can be printed."""
    said = error.format_message() if isinstance(error, click.ClickException) else str(error)
    if not 10 <= len(said) <= 2000 or " " not in said:
        return f"no sentence, or {len(said)} characters"
    if "this machine's memory" in said:
        return "it took all memory"
    return None if said.replace("\n", "").isprintable() else "it cannot be printed"


def attempt(kind: str, data: bytes, folder: Path) -> tuple[bool, str | None]:
    """Whether the file was read, and what was wrong with how."""
    path = folder / KINDS[kind].file
    path.write_bytes(data)
    try:
        KINDS[kind].read(path)
    except (DiodeError, click.UsageError) as error:
        why = complaint(error)
        return False, None if why is None else f"{type(error).__name__}: {why}: {error!s:.300}"
    except Exception as error:  # noqa: BLE001  # each is a defect, to be told
        where = traceback.extract_tb(error.__traceback__)[-3:]
        calls = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(where))
        return False, f"{type(error).__name__} at {calls}: {error!s:.300}"
    return True, None


def done(kind: str, first: int, count: int, folder: Path, at: BinaryIO, job: int) -> dict[str, Any]:
    """What came of a job."""
    counts: Counter[str] = Counter()
    defects: list[tuple[int, str]] = []
    slowest = (0.0, first)
    for number in range(first, first + count):
        at.seek(0)
        at.write(struct.pack("<QQ", job, number))
        data = made(kind, number)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # SIGPROF ends the process
        was_read, wrong = attempt(kind, data, folder)
        signal.setitimer(signal.ITIMER_PROF, 0)
        slowest = max(slowest, (time.process_time() - began, number))
        counts["defects" if wrong else "read" if was_read else "refused"] += 1
        if wrong and len(defects) < SHOWN:
            defects.append((number, wrong))
    return {"kind": kind, "counts": counts, "slowest": slowest, "defects": defects}


def main(place: Path, jobs: list[tuple[str, int, int]]) -> None:
    warnings.simplefilter("error")
    logging.disable()
    with tempfile.TemporaryDirectory() as name, place.open("r+b", buffering=0) as at:
        # What is imported and made on first use is not an input's time and memory.
        folders = {kind: Path(name, kind) for kind, _, _ in jobs}
        for kind, folder in folders.items():
            folder.mkdir()
            for number in (-1, -2, -3):
                attempt(kind, made(kind, number), folder)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for job, (kind, first, count) in enumerate(jobs):
            found = done(kind, first, count, folders[kind], at, job)
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
