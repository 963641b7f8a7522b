"""Every block of docs/toolkit.md is run as it is written, in the page's order and one folder.

tests/docs/test_blocks.py leaves them out, because they need a GPU or what the blocks before them
have made. Here `diode-engine` is tests/docs/scripted_gpu.py, and Python's blocks find a pretended
H200. Without either, they run up to the step that needs a GPU.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from diode_engine.problems.splits import held_out_by
from diode_engine.store import read_dataset

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "toolkit.md").read_text(encoding="utf-8")
SHELL, PYTHON = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("sh", "python"))
COLLECT, TRAIN, VALIDATION, JUDGE, AGAINST, *OTHERS = SHELL
SHAPESET = {
    "operations": {
        "mm": {"shapes": [
            {"B": 1, "M": m, "N": 64, "K": 64, "M_dtype": "float16", "K_dtype": "float16",
             "out_dtype": "float16", "out_size": [m, 64], "out_stride": [64, 1]}
            for m in (64, 128)
        ]}
    }
}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Machine:
    """A folder to run blocks in."""

    def __init__(self, folder: Path, *, gpu: bool) -> None:
        self.folder = folder
        bin_ = folder / "bin"
        bin_.mkdir(parents=True)
        module = ("tests/docs/scripted_gpu.py",) if gpu else ("-m", "diode_engine")
        command = " ".join((sys.executable, str(ROOT / module[0]) if gpu else "-m diode_engine"))
        (bin_ / "diode-engine").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (bin_ / "diode-engine").chmod(0o755)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DIODE_", "TORCH"))},
            "CUDA_VISIBLE_DEVICES": "",
            "DIODE_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        if gpu:  # a worker is told the number of its GPU
            del self.environment["CUDA_VISIBLE_DEVICES"]

    def run(self, *command: str) -> Ran:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, timeout=120, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    def shell(self, block: str) -> Ran:
        return self.run("bash", "-euo", "pipefail", "-c", block)

    def python(self, block: str) -> Ran:
        pretended = "from diode_engine.inductor.without_gpu import pretend; pretend()\n"
        return self.run(sys.executable, "-c", pretended + block)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The machine with a GPU, after the first two steps of the tutorial."""
    machine = Machine(tmp_path_factory.mktemp("gpu"), gpu=True)
    (machine.folder / "notes.msgpack").write_bytes(b"\x80")
    machine.collected = machine.shell(COLLECT)
    machine.trained = machine.shell(TRAIN)
    machine.validation = machine.shell(VALIDATION)
    return machine


def dataset(machine: Machine, name: str) -> list:
    return list(read_dataset(machine.folder / name).problems)


def test_collect(machine: Machine) -> None:
    ran = machine.collected
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["problems_done"] == 10
    problems = dataset(machine, "tutorial_dataset.msgpack")
    assert len(problems) == 10
    said = ran.err.splitlines()
    assert f"[10/10] problems, {json.loads(ran.out)['timings']} timings" in said
    statistics = said[said.index("Dataset Statistics:") :]
    assert statistics[1] == "Hardware: NVIDIA H200"
    of_ops = dict(re.fullmatch(r"  Operation '(\w+)': (\d+) problems, \d+ configs", line).groups()
                  for line in statistics[2:])  # fmt: skip
    assert {op: str([str(p.op) for p in problems].count(op)) for op in of_ops} == of_ops
    assert "--format changes nothing" in ran.err
