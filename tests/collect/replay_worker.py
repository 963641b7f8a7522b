"""Answers as a worker of a collection does, with timings that were measured before: a replay.

    python tests/collect/replay_worker.py FILE SCALE FD

FILE is made by `write` from a dataset. A batch takes as long as a batch of its size took at the
rate that was measured on an H200, times SCALE. On each GPU one batch at a time is timed, because
its workers have a lock, as real ones do. Nothing runs on a GPU. The environment says that this is a
replay, in the GPU's name and the driver's version, so that replayed timings are never mistaken for
measured ones.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgpack

from diode_engine.collect.processes import children, protocol
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable

ENVIRONMENT = Environment(replace(H200, name=f"{H200.name} (replay)"), "replay", "replay", "replay")
# One H200 with six workers took 1,359 timings a second (docs/notes/README.md, collect_rate.py).
SECONDS_EACH = 1 / 1359


def write(table: TimingTable, problems: Iterable[int], file: Path) -> list[Problem]:
    """Writes the timings of these problems of a table into a file for workers; returns the
    problems."""
    found: dict[str, Any] = {}
    wanted = list(problems)
    for number in wanted:
        rows = [int(i) for i in (table.problem == number).nonzero()[0]]
        once = {int(table.candidate[i]): i for i in rows}
        found[table.problems[number].key] = {
            "offered": protocol.pack_candidates(table.candidates[c] for c in once),
            "timings": {
                table.candidates[c].key: protocol.timed(0, table.timing(i), "")
                for c, i in once.items()
            },
        }
    file.write_bytes(msgpack.packb(found))
    return [table.problems[number] for number in wanted]


def main() -> None:
    file, scale, number = sys.argv[1:]
    connection = Connection(int(number))
    children.end_with_parent()
    known = msgpack.unpackb(Path(file).read_bytes())
    delay = SECONDS_EACH * float(scale)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpu = f"replay-{visible}"
    # The processes of a cluster's GPUs, all of them here, have each a GPU 0 of their own.
    lock = Path(f"{file}-{os.getppid()}-{visible}.lock")
    connection.send_bytes(protocol.pack({"environment": ENVIRONMENT.to_dict(), "gpu": gpu}))
    while True:
        try:
            request = protocol.unpack(connection.recv_bytes())
        except EOFError:
            return
        problem = known.get(Problem.from_dict(request["problem"]).key)
        if problem is None:
            connection.send_bytes(protocol.pack({"refused": "nothing is known to be replayed"}))
            continue
        if "candidates" not in request:
            answer = {"offered": problem["offered"], "default": protocol.pack_candidates([])}
            connection.send_bytes(protocol.pack(answer))
            continue
        candidates = [Candidate.from_dict(fields) for fields in request["candidates"]]
        answers = [
            {**problem["timings"][candidate.key], "timing": index}
            for index, candidate in enumerate(candidates)
        ]
        with lock.open("w") as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            time.sleep(delay * len(candidates))
        connection.send_bytes(b"".join(map(protocol.pack, [*answers, {"done": True}])))


if __name__ == "__main__":
    main()
