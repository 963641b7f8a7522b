"""Timings by a rule that a small model can learn: a roofline, worse the further BLOCK_M is
from M, on as many problems as are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure
from diode_engine.models.manifest import Data
from diode_engine.store import Store, dataset_key
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit_steps import FitTask, Members
from diode_engine.training.fits import FitExecutor
from diode_engine.training.run import train_from_store
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.train import Trained, split_timings
from diode_engine.training.train import train as train_split
from tests.samples import pairs, table_of, tile

ENVIRONMENT = Environment(H200, "570", "2.13.0", "3.7.1")
CANDIDATES = (
    *(tile(m, n, 64) for m in (16, 64, 128) for n in (32, 128)),
    Candidate.make("aten::mm"),
    Candidate.make("cutlass::mm"),  # no features know it
)


def make_timings(
    problems: int = 80,
    *,
    candidates: Sequence[Candidate] = CANDIDATES,
    environment: Environment = ENVIRONMENT,
) -> TimingTable:
    """Every candidate on every problem; some of the slow ones failed."""
    rng = np.random.default_rng(7)
    asked = tuple(
        Problem.make("mm", *(int(2**v) for v in rng.uniform(4, 12, 3)), "bfloat16")
        for _ in range(problems)
    )
    p, c = pairs(problems, len(candidates))
    rows = np.array([problem.M for problem in asked])[p]
    flops = np.array([problem.flops for problem in asked])[p]
    block = np.array([float(str(k.config.get("BLOCK_M", 40))) for k in candidates])[c]
    off = np.abs(np.log2(block) - np.clip(np.log2(rows), 4, 7))
    failed = (off > 1.9) & (np.arange(len(p)) % 3 == 0)  # slow ones, which no good model takes
    us = np.where(failed, np.nan, 0.1 + flops / 3e8 * (1 + off))
    code = FAILURES.index(Failure.TIMEOUT) + 1
    return table_of(asked, candidates, us, environment, np.where(failed, code, 0))


@pytest.fixture(scope="session")
def timings() -> TimingTable:
    return make_timings()


@pytest.fixture
def store(tmp_path: Path, timings: TimingTable) -> Iterator[Store]:
    """A store of the timings, which were imported from a file."""
    with Store.open(tmp_path / "diode.db") as store:
        spec = {"file": "somewhere/timings.json"}
        store.import_table(timings, key=dataset_key(timings), spec=spec)
        yield store


@pytest.fixture(autouse=True)
def _small_space(nothing_shipped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher is asked about the few candidates that there are timings of."""
    monkeypatch.setattr(
        "diode_engine.training.distillation.exhaustive_space", lambda problem, torch: CANDIDATES
    )


def fit(
    table: TimingTable,
    family: str,
    *,
    settings: TrainingSettings | None = None,
    checkpoints: Checkpoints | None = None,
) -> Members:
    """The members of one model, fitted in this process."""
    task = FitTask(table, family, 0, settings)
    (members,) = FitExecutor().fit_all([task], lambda *_: None, checkpoints)
    return members


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Fits use one core here, as they do in worker processes and on a cluster."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train_in(folder: Path, request: TrainingRequest, fits: FitExecutor) -> tuple[Any, ...]:
    """What a training in a new folder makes: the model's files, what the manifest says of it, and
    the points of its curves, by name."""
    with pytest.MonkeyPatch.context() as patch, Store.open(folder / "s.db") as store:
        patch.setenv("DIODE_HOME", str(folder / "home"))
        store.add(store.start_run("import", {}), make_timings(100))
        model = train_from_store(store, request, fits=fits).model
        (run,) = [run for run in store.runs() if run.kind == "train"]
        curves = {name: list(zip(*xy, strict=True)) for name, xy in store.curves(run.id).items()}
    manifest = model.manifest
    files = {f.name: f.read_bytes() for f in model.folder.iterdir() if f.suffix != ".json"}
    return files, (manifest.metrics, manifest.notes, manifest.data), curves


def train(table: TimingTable, request: TrainingRequest, **callbacks: Any) -> Trained:
    """The result of a training in this process, which is no run of a store."""
    return train_split(split_timings(table, request), request, Data(), **callbacks)
