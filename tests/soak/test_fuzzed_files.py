"""Every file that a stranger may hand over is read as a valid object or refused with a sentence, in
bounded time and memory, whatever is in it.

    pytest tests/soak/test_fuzzed_files.py -rP --tries 1000000

tells how many of each kind were read and refused. An input that was found to be a defect is made
again by its kind and number (`fuzz_worker.made`).
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.soak.kinds import KINDS, ROOT

USUAL_TRIES = 5_600
CHUNK = 4_000  # inputs a job: what is not counted where one of them ends its process
PROCESSES = 2
WAIT_SECONDS = 600.0  # for a job: CHUNK inputs take some 20

Job = tuple[str, int, int]  # kind, number of the first input, count


class Found:
    """What came of all jobs."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self.slowest: dict[str, tuple[float, int]] = dict.fromkeys(KINDS, (0.0, 0))
        self.defects: list[str] = []

    def add(self, line: str) -> None:
        said = json.loads(line)
        kind = said["kind"]
        self.counts[kind].update(said["counts"])
        self.slowest[kind] = max(self.slowest[kind], tuple(said["slowest"]))
        self.defects += [f"{kind} {number}: {why}" for number, why in said["defects"]]

    def __str__(self) -> str:
        rows = [
            f"{kind:22} read {c['read']:8,}  refused {c['refused']:8,}  defects {c['defects']:4}  "
            f"slowest {self.slowest[kind][0]:.2f} s ({self.slowest[kind][1]})"
            for kind, c in self.counts.items()
        ]
        total = sum((c for c in self.counts.values()), Counter[str]())
        return "\n".join([*rows, f"all: {total.total():,}, {dict(total)}", *self.defects])


def work(jobs: list[Job], place: Path, found: Found) -> None:
    """Has processes do the jobs, a new one after each that died."""
    place.write_bytes(bytes(16))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    while jobs:
        process = subprocess.run(
            [sys.executable, "-m", "tests.soak.fuzz_worker", str(place), json.dumps(jobs)],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
            timeout=WAIT_SECONDS * len(jobs),
        )  # fmt: skip
        for line in process.stdout.splitlines():
            found.add(line)
        if process.returncode == 0:
            return
        job, number = struct.unpack("<QQ", place.read_bytes())
        kind, first, count = jobs[job]
        said = process.stderr.strip().splitlines()[-1:] or [""]
        found.defects.append(f"{kind} {number}: the process ended, {process.returncode}: {said[0]}")
        found.counts[kind]["defects"] += 1
        rest = first + count - number - 1
        jobs = [(kind, number + 1, rest)] * (rest > 0) + jobs[job + 1 :]
        if len(found.defects) > 50:
            return


def jobs_of(tries: int) -> list[list[Job]]:
    """For each process, all kinds in turn, in chunks of which none is long."""
    each = max(1, tries // len(KINDS))
    jobs = [
        (kind, first, min(CHUNK, each - first)) for first in range(0, each, CHUNK) for kind in KINDS
    ]
    return [jobs[i::PROCESSES] for i in range(PROCESSES)]


def fuzzed(tries: int, folder: Path) -> Found:
    found = Found()
    parts: Sequence[list[Job]] = jobs_of(tries)
    with ThreadPoolExecutor(PROCESSES) as pool:
        places = [folder / f"place-{i}" for i in range(PROCESSES)]
        list(pool.map(work, parts, places, [found] * PROCESSES))
    return found


def test_every_file_is_read_or_refused(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    found = fuzzed(request.config.getoption("tries", None) or USUAL_TRIES, tmp_path)
    sys.stdout.write(f"{found}\n")
    assert not found.defects, str(found)
    for kind, counts in found.counts.items():
        assert counts["refused"] or kind == "workflow's memory", f"{kind}: nothing was refused"
        assert counts["read"], f"{kind}: nothing was read, so what follows was not tried"
