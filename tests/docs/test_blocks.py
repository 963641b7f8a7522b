"""The blocks of code in README.md and docs/*.md are run, each page in a folder of its own.

The folder is the page's DIODE_HOME and working directory. It has a program that compiles a layer
(program.py), and some of the shipped timings, at their path in the repository and as
timings.json.zst. It also has a store of them (diode.db) and a
model (mine@1), except for the page that begins with nothing. A block that cannot or should not run
here is marked in the page's source: `<!-- skip: next "needs a GPU" -->`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from unittest import SkipTest

import pytest
from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from diode_engine import paths
from diode_engine.store import read_dataset, write_dataset

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BEGINNING = ROOT / "docs" / "getting-started.md"
SHIPPED = "datasets/nvidia-h200/gemm-2026-11-21.msgpack.zst"
ONE_IN = 24  # of the shipped problems
SECONDS = 120  # time limit of a block
PROGRAM = """
import torch

layer = torch.compile(torch.nn.Linear(256, 512, dtype=torch.bfloat16))
layer(torch.randn(16, 256, dtype=torch.bfloat16))
"""

Run = Callable[[list[str]], None]


@pytest.fixture(scope="session")
def folder(made_once):
    """The folder that each page gets a copy of."""
    return made_once("a-page", _fill)


def _fill(folder: Path) -> None:
    (folder / SHIPPED).parent.mkdir(parents=True)
    table = read_dataset(paths.shipped_dir() / SHIPPED)
    some = table.take(table.problem % ONE_IN == 0)
    write_dataset(some, folder / SHIPPED)
    write_dataset(some, folder / "timings.json.zst")
    (folder / "program.py").write_text(PROGRAM)
    run = _runner(folder)
    run(["diode-engine", "data", "import", "timings.json.zst"])
    quick = ("--family", "network", "--hidden", "32", "--epochs", "2")
    run(["diode-engine", "train", "--name", "mine", *quick])


def _runner(folder: Path) -> Run:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("DIODE_", "TORCH", "PYTEST_"))},
        "CUDA_VISIBLE_DEVICES": "",
        "DIODE_HOME": str(folder),
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }

    def run(command: list[str]) -> None:
        done = subprocess.run(
            command, cwd=folder, env=environment, timeout=SECONDS, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"exit code {done.returncode}:\n{done.stdout}")

    return run


def _of(language: str, evaluate: Callable[[str], object]) -> CodeBlockParser:
    def evaluated(example: Example) -> None:
        evaluate(example.parsed)

    return CodeBlockParser(language, evaluated)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks(page, folder, tmp_path, record_property):
    made = shutil.ignore_patterns("diode.db*", "models") if page == BEGINNING else None
    own = shutil.copytree(folder, tmp_path / "page", ignore=made)
    run = _runner(own)
    document = Document.parse(
        str(page),
        _of("sh", lambda text: run(["bash", "-euo", "pipefail", "-c", text])),
        _of("python", lambda text: run([sys.executable, "-c", text])),
        _of("json", json.loads),
        _of("toml", tomllib.loads),
        SkipParser(),
    )
    ran, failed = 0, []
    for example in document.examples():
        try:
            example.evaluate()
        except SkipTest:
            continue
        except Exception as error:  # noqa: BLE001 -- whatever a block fails with is told
            failed.append(f"{page.name}:{example.line}: {error}")
        ran += not isinstance(example.parsed, tuple)  # what a skip itself is parsed to
    record_property("blocks", ran)
    if failed:
        pytest.fail("\n".join(failed), pytrace=False)


def test_every_mark_has_its_reason():
    """Sybil runs what is marked without one."""
    for page in PAGES:
        for example in Document.parse(str(page), SkipParser()).examples():
            action, reason = example.parsed
            assert action == "next", f"{page.name}:{example.line}"
            assert reason, f"{page.name}:{example.line}"
