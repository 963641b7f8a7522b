"""Fuzzed files of every kind, read in processes whose memory and time are bounded.

An input that was found to be a defect is made again by its kind and number (`fuzz_worker.made`).
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.soak.kinds import KINDS, ROOT

CHUNK = 2_000  # inputs a job: what is not counted where one of them ends its process

Job = tuple[str, int, int]  # kind, number of the first input, count


class Found:
    """What came of all jobs."""

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
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(
                [sys.executable, "-m", "tests.soak.fuzz_worker", str(place), json.dumps(jobs)],
                cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=said, text=True,
            ) as process,
        ):  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                found.add(line)
            code = process.wait()
            said.seek(0)
            last = (said.read().strip().splitlines() or [""])[-1]
        if code == 0:
            return
        job, number = struct.unpack("<QQ", place.read_bytes())
        kind, first, count = jobs[job]
        died = f"the process ended, {code}: {last}"
        counts = {"defects": 1}
        found.add(json.dumps({"kind": kind, "counts": counts, "slowest": [0.0, number],
                              "defects": [[number, died]]}))  # fmt: skip
        rest = first + count - number - 1
        jobs = [(kind, number + 1, rest)] * (rest > 0) + jobs[job + 1 :]
        if len(found.defects) > 50:
            return


def jobs_of(tries: int, processes: int) -> list[list[Job]]:
    """For each process, all kinds in turn, in chunks of which none is long."""
    each = -(-tries // len(KINDS))  # so many or a few more in all
    jobs = [
        (kind, first, min(CHUNK, each - first)) for first in range(0, each, CHUNK) for kind in KINDS
    ]
    return [jobs[i::processes] for i in range(processes)]


def fuzzed(tries: int, folder: Path, processes: int = 2) -> Found:
    """Tries so many inputs, of all kinds alike; `found.jsonl` in the folder grows with each job."""
    found = Found(folder / "found.jsonl")
    parts: Sequence[list[Job]] = jobs_of(tries, processes)
    with ThreadPoolExecutor(processes) as pool:
        places = [folder / f"place-{i}" for i in range(processes)]
        list(pool.map(work, parts, places, [found] * processes))
    return found


def check(found: Found) -> None:
    """Fails where there is a defect, or a kind of which none was read or none refused: then what
    follows the one or the other was not tried."""
    assert not found.defects, str(found)
    for kind, counts in found.counts.items():
        assert counts["refused"] or kind == "workflow's memory", f"{kind}: nothing was refused"
        assert counts["read"], f"{kind}: nothing was read"
