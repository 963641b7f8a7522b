"""Runs the ranks of a distributed program, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RANK = Path(__file__).parent / "inductor_nogpu" / "rank.py"


@dataclass(frozen=True)
class Rank:
    """What differs between the processes of a program, and from one start to the next."""

    environment: dict[str, str] = field(default_factory=dict)
    others: bool = False  # it compiles other graphs first


def run_ranks(place: Path, *ranks: Rank) -> list[dict[str, Any]]:
    """What each rank of a program tells (see rank.py)."""
    meeting = str(place / f"meeting-{len(list(place.iterdir()))}")
    processes = []
    for number, rank in enumerate(ranks):
        process = subprocess.Popen(
            [sys.executable, str(RANK)], env={**os.environ, **rank.environment}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        json.dump({"rank": number, "meeting": meeting, "others": rank.others}, process.stdin)
        process.stdin.close()
        process.stdin = None  # as `communicate` wants it
        processes.append(process)
    try:
        ended = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], ended
    return [json.loads(out) for out, _ in ended]
