"""Timings in a file, a model without weights, and the command run in this process."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from diode_engine import features
from diode_engine.cli import main
from diode_engine.cli.group import COMMANDS
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure
from diode_engine.models.artifact import save_artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, Manifest
from diode_engine.problems.sources import write_shapeset
from diode_engine.store import Store, import_dataset, write_dataset
from tests.samples import pairs, table_of, tile, weighing

TILE = {"block_m": 64, "block_n": 64, "block_k": 64}
CANDIDATES = (
    Candidate.make("aten::mm"),
    *(tile(m, n, 64) for m, n in ((16, 128), (64, 64), (128, 128))),
)


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    def says(self, code: int, *sentences: str) -> None:
        """It ended with this exit code, wrote nothing to stdout, and said why."""
        assert (self.code, self.out) == (code, ""), self
        said = " ".join(self.err.split())
        assert "Traceback" not in said
        assert "did not expect" not in said
        for sentence in sentences:
            assert sentence in said

    def json(self) -> Any:
        """What it wrote to stdout, having succeeded."""
        assert self.code == 0, self
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        """The values that it wrote to stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


def every_command() -> Iterator[tuple[str, click.Command]]:
    """The words of each command that is no group, and the command."""
    below = [(name, entry.load(name)) for name, entry in COMMANDS.items()]
    while below:
        words, command = below.pop(0)
        if isinstance(command, click.Group):
            below += [(f"{words} {name}", child) for name, child in command.commands.items()]
        else:
            yield words, command


def execute(store: Path, *statements: str) -> None:
    """Changes a store behind Diode's back."""
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs diode-engine."""

    def _run(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    return _run


def make_timings(
    problems: int = 12, *, name: str = H200.name, triton: str = "3.7.1"
) -> TimingTable:
    """Each candidate on each problem: three times what the features' base time says, one in
    nine failed."""
    hardware = replace(H200, name=name)
    asked = tuple(
        Problem.make("mm", 8 << i % 8, 64 * (1 + i), 512 + 8 * i, "bfloat16")
        for i in range(problems)
    )
    p, c = pairs(problems, len(CANDIDATES))
    x = features.matrix(asked, CANDIDATES, p, c, hardware)
    failed = np.arange(len(p)) % 9 == 7
    us = np.where(failed, np.nan, 3 * np.exp2(x[:, features.BASE].astype(np.float64)))
    environment = Environment(hardware, "570.1", "2.13.0", triton)
    failures = np.where(failed, FAILURES.index(Failure.TIMEOUT) + 1, 0)
    return table_of(asked, CANDIDATES, us, environment, failures)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dataset, a store of it and a model, which tests get copies of."""
    folder = tmp_path_factory.mktemp("made")
    table = make_timings()
    write_dataset(table, folder / "timings.json")
    with Store.open(folder / "store.db") as store:
        import_dataset(store, folder / "timings.json")
    manifest = Manifest(
        name="tripled", family="", hardware=H200, coverage=Coverage.make(table),
        data=Data(("d" * 32,), ("a run",), 12, 48), torch=("2.13.0",), triton=("3.7.1",),
        metrics={"efficiency": 0.875}, notes="Made by hand.",
    )  # fmt: skip
    save_artifact(folder / "model", manifest, (weighing({}, np.log(3), residual=True),))
    return folder


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Path:
    """Twelve problems with four candidates each."""
    return shutil.copy(made / "timings.json", tmp_path / "timings.json")


@pytest.fixture
def store(made: Path, dataset: Path, tmp_path: Path) -> Path:
    """A store with the timings of `dataset`."""
    return shutil.copy(made / "store.db", tmp_path / "store.db")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The servers of the dashboard that were made, which serve nothing."""
    pytest.importorskip("textual_serve")
    from diode_engine.cli.dashboard_server import DashboardServer

    servers: list[Any] = []
    monkeypatch.setattr(DashboardServer, "serve", lambda server: servers.append(server))
    return servers


@pytest.fixture
def shapeset(tmp_path: Path) -> Callable[..., Path]:
    """Writes a shapeset of these problems."""

    def write(*problems: Problem, name: str = "shapes.json") -> Path:
        write_shapeset(problems, tmp_path / name, "a test")
        return tmp_path / name

    return write


@pytest.fixture
def solution(tmp_path: Path) -> Callable[..., Path]:
    """Writes a solution of max-autotune with these configs, by default one for all problems."""

    def write(*configs: object) -> Path:
        path = tmp_path / "solution.json"
        path.write_text(json.dumps({"name": "found", "configs": configs or [TILE]}))
        return path

    return write


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    """A model's folder: it predicts three times the base time, and knows these candidates."""
    return shutil.copytree(made / "model", tmp_path / "model")
