"""Fuzzed files of every kind, read in processes whose memory and time are bounded.

    python -m tests.soak.fuzzing PLACE JOBS

is such a process. JOBS is JSON, [[kind, number of the first input, count], …]. PLACE is a file of
16 bytes with the job's place and the number of the input that is being read: if the process dies,
that one ended it. An input is made from its kind and number alone (`made`), so a defect can be made
again. The process writes a JSON line a job: how many were read and refused, the slowest, the
defects.
"""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import click

from diode_engine.errors import DiodeError
from tests.soak.kinds import KINDS, ROOT

SECONDS = 10.0  # of a processor, for one input; the process is ended then
BYTES = 1 << 30  # of address space, for one input: more than the process has at its begin
SHOWN = 20  # defects of a job; more are counted
CHUNK = 2_000  # inputs a job

Job = tuple[str, int, int]  # kind, number of the first input, count


class Found:
    """What came of all jobs; `found.jsonl` in the folder grows with each of them."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.slowest: dict[str, tuple[float, int]] = dict.fromkeys(KINDS, (0.0, 0))
        self.defects: list[str] = []

    def add(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{line.strip()}\n")
        said = json.loads(line)
        kind = said["kind"]
        self.counts[kind].update(said["counts"])
        self.slowest[kind] = max(self.slowest[kind], tuple(said["slowest"]))
        self.defects += [f"{kind} {number}: {why}" for number, why in said["defects"]]

    def check(self) -> None:
        """Fails where there is a defect, or a kind of which none was read or none refused: then
        what follows the one or the other was not tried."""
        assert not self.defects, str(self)
        for kind, counts in self.counts.items():
            assert counts["refused"], f"{kind}: nothing was refused"
            assert counts["read"], f"{kind}: nothing was read"

    def __str__(self) -> str:
        rows = [
            f"{kind:22} read {c['read']:8,}  refused {c['refused']:8,}  defects {c['defects']:4}  "
            f"slowest {self.slowest[kind][0]:.2f} s ({self.slowest[kind][1]})"
            for kind, c in self.counts.items()
        ]
        total = sum((c for c in self.counts.values()), Counter[str]())
        return "\n".join([*rows, f"all: {total.total():,}, {dict(total)}", *self.defects])


def fuzzed(tries: int, folder: Path, processes: int = 2) -> Found:
    """Tries so many inputs, or a few more, of all kinds alike. What a process that died had still
    to do is not tried."""
    found = Found(folder / "found.jsonl")
    each = -(-tries // len(KINDS))
    jobs = [
        (kind, first, min(CHUNK, each - first)) for first in range(0, each, CHUNK) for kind in KINDS
    ]

    def work(number: int) -> None:
        mine, place = jobs[number::processes], folder / f"place-{number}"
        place.write_bytes(bytes(16))
        process = subprocess.run(
            [sys.executable, "-m", "tests.soak.fuzzing", str(place), json.dumps(mine)], cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in process.stdout.splitlines():
            found.add(line)
        if process.returncode:
            job, at = struct.unpack("<QQ", place.read_bytes())
            last = (process.stderr.strip().splitlines() or [""])[-1]
            found.defects.append(
                f"{mine[job][0]} {at}: the process ended, {process.returncode}: {last}"
            )

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(work, range(processes)))
    return found


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


def _done(job: int, kind: str, first: int, count: int, folder: Path, at: BinaryIO) -> Any:
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


def main(place: Path, jobs: list[Job]) -> None:
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
        for number, (kind, first, count) in enumerate(jobs):
            found = _done(number, kind, first, count, folders[kind], at)
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
