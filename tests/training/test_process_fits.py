"""Fits in worker processes: the same as in one process, and what goes wrong."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.errors import TrainingError
from diode_engine.models import model_types, network
from diode_engine.models.artifact import load_artifact
from diode_engine.models.fitting import FitProgress, ProgressCallback
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.problems.splits import folds
from diode_engine.store import Store
from diode_engine.training import fit_steps
from diode_engine.training import process_fits as module
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.fit_jobs import FitMember
from diode_engine.training.fit_pool import Job
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import FitExecutor
from diode_engine.training.process_fits import ProcessFits, ProcessPool, available_bytes
from diode_engine.training.run import train_from_store
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.trainable_rows import learnable
from tests.samples import tile
from tests.training.conftest import fit, make_timings, train_in

SMALL = (
    TrainingSettings(lessons=40)
    .but("trees", rounds=12, learning_rate=0.3, max_depth=4, threads=1)
    .but("network", epochs=3, hidden=(8,))
    .but("distilled", epochs=3, hidden=(12, 8))
    .but("cascade", epochs=3, hidden=(12, 8))
)
ENDLESS = SMALL.but("trees", rounds=1_000_000, patience=1_000_000)


def endless(table):
    return [FitTask(table, "trees", seed, ENDLESS) for seed in (1, 2, 3)]


@pytest.fixture(autouse=True)
def _as_in_processes(one_thread, monkeypatch):
    """The whole space, which worker processes know, and one thread, which they have. Teachers have
    one network: each process that fits one imports torch."""
    monkeypatch.setattr("diode_engine.training.distillation.exhaustive_space", exhaustive_space)
    for name in (model_types.ENSEMBLE, model_types.LARGE):
        monkeypatch.setitem(model_types._COMBINATIONS, name, ("trees", "network"))


@pytest.fixture(scope="module")
def learned():
    return learnable(make_timings(30))


class Reports(dict[str, list[FitProgress | None]]):
    """What the fits reported, by label."""

    def __call__(self, label: str, progress: FitProgress | None) -> None:
        self.setdefault(label, []).append(progress)


def workers_of(parent: int) -> set[int]:
    """The worker processes of this process."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = b"spawn_main" in (folder / "cmdline").read_bytes()
            ppid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if is_worker and ppid == parent:
            found.add(int(folder.name))
    return found


def running(processes: set[int]) -> set[int]:
    return {process for process in processes if Path(f"/proc/{process}").exists()}


def test_a_model_is_that_of_one_process(monkeypatch):
    """Its lessons too, in many jobs, and every step that is reported."""
    # The last bits of a product depend on how many rows it has: a job has whole blocks of them.
    assert fit_steps._ANSWERS % network._BLOCK == 0
    monkeypatch.setattr(fit_steps, "_ANSWERS", network._BLOCK)
    tiles = itertools.product((16, 64, 128), (32, 128), (32, 64, 128), (2, 3, 4))
    candidates = [Candidate.make("aten::mm"), *(tile(*sizes) for sizes in tiles)]
    learned = learnable(make_timings(110, candidates=candidates))
    tasks = [
        FitTask(part.learned, family, 3, SMALL, part.name)
        for part, family in zip(folds(learned, 2), ("distilled", "cascade"), strict=True)
    ]
    assert all(len(task.learned) > network._BLOCK for task in tasks)
    here = Reports()
    one = [[m.to_bytes() for m in members] for members in FitExecutor().fit_all(tasks, here)]
    assert len(here) == 6
    assert list(here)[-1] == "cascade-2, fold 2 of 2"
    assert all(steps.index(None) == len(steps) - 1 for steps in here.values())
    there = Reports()
    many = ProcessFits(2, min_rows=0).fit_all(tasks, there)
    assert [[m.to_bytes() for m in members] for members in many] == one
    assert there == here


def test_a_training_is_that_of_one_process(tmp_path):
    """Its model, what it says of it, and its curves: of the model, its folds and that of all."""
    request = TrainingRequest("trees", settings=SMALL, seed=3, everything=True)
    here = train_in(tmp_path / "here", request, FitExecutor())
    assert train_in(tmp_path / "processes", request, ProcessFits(2, min_rows=0)) == here
    files, _, curves = here
    assert "confidence.safetensors" in files
    assert "trees-0, fold 1 of 3/objective" in curves


def test_a_tuned_model_is_fitted_here_and_has_a_rate(tmp_path, monkeypatch):
    monkeypatch.setenv("DIODE_HOME", str(tmp_path))
    monkeypatch.setattr("diode_engine.training.run.WRITE_SECONDS", 0.0)
    with Store.open(tmp_path / "diode.db") as store:
        store.add(store.start_run("import", {}), make_timings(30))
        made = train_from_store(store, TrainingRequest("trees", settings=SMALL)).model
        more = replace(SMALL, lessons=150)
        request = TrainingRequest(base=load_artifact(made.folder), settings=more)
        rates: list[float | None] = []

        def report(label: str, progress: FitProgress | None) -> None:
            (run,) = [each for each in store.runs() if each.spec.get("fine_tune")]
            rates.append((run.progress or {}).get("rate"))

        fits = ProcessFits(2, min_rows=0)
        tuned = train_from_store(store, request, fits=fits, report=report).model
    assert tuned.manifest.data.base == made.manifest.identity
    assert any(rates)


def test_what_cannot_be_fitted_is_the_same_sentence(learned):
    few = learned.take(learned.problem < 4)
    said = []
    for fits in (FitExecutor(), ProcessFits(2, min_rows=0)):
        with pytest.raises(TrainingError, match="too few") as raised:
            fits.fit_all([FitTask(few, "trees")], Reports())
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_what_a_process_raises_is_one_sentence(learned):
    wrong = SMALL.but("trees", max_depth=-3)
    with pytest.raises(TrainingError, match=r"^A fit failed: XGBoostError") as raised:
        ProcessFits(2, min_rows=0).fit_all([FitTask(learned, "trees", settings=wrong)], Reports())
    assert "\n" not in str(raised.value)


def test_few_timings_are_fitted_in_this_process(learned, monkeypatch):
    monkeypatch.setattr(module, "ProcessPool", None)
    wanted = fit(learned, "trees", settings=SMALL)[0].to_bytes()
    for fits in (ProcessFits(4), ProcessFits(1, min_rows=0)):
        ((model,),) = fits.fit_all([FitTask(learned, "trees", settings=SMALL)], Reports())
        assert model.to_bytes() == wanted


def test_a_fit_that_is_cancelled_ends_its_processes(learned):
    seen: set[int] = set()

    def stop(*_: object) -> None:
        seen.update(workers_of(os.getpid()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProcessFits(3, min_rows=0).fit_all(endless(learned), stop)
    assert len(seen) >= 2
    assert not running(seen)


@pytest.mark.parametrize("fits", [FitExecutor(), ProcessFits(2, min_rows=0)])
def test_a_fit_that_was_cut_short_continues(learned, tmp_path, fits, monkeypatch):
    """From the step of its checkpoint; members that were finished are not fitted again."""
    monkeypatch.setitem(model_types._COMBINATIONS, model_types.ENSEMBLE, ("trees",))
    settings = SMALL.but("distilled", epochs=90, patience=90)
    tasks = [FitTask(learned, "distilled", 0, settings)]
    kept = tmp_path / "kept"
    first: list[str] = []

    def stop(label: str, progress: FitProgress | None) -> None:
        first.append(label)
        if progress is not None and label == "distilled-1" and progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fits.fit_all(tasks, stop, Checkpoints(kept, seconds=0))
    assert {"trees-0", "distilled-1"} == set(first)
    assert list(kept.glob("*.safetensors"))
    reports, again = Reports(), Checkpoints(kept, seconds=0)
    ((model,),) = fits.fit_all(tasks, reports, again)
    steps = reports.pop("distilled-1")
    assert [progress.step for progress in steps[:2] if progress] == [1, 2]
    assert all(steps == [None] for steps in reports.values())  # their checkpoints have them
    assert len(reports) == 1
    assert model.to_bytes() == fit(learned, "distilled", settings=settings)[0].to_bytes()
    nothing = Reports()
    ((same,),) = fits.fit_all(tasks, nothing, again)
    assert list(nothing.values()) == [[None]] * 2
    assert same.to_bytes() == model.to_bytes()
    again.clear()
    # A process that was killed while it wrote may have left an unfinished file.
    assert not list(kept.glob("[!.]*"))


def test_a_process_that_is_killed_ends_the_fits_with_a_sentence(learned, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def kill(*_: object) -> None:
        for process in workers_of(os.getpid()):
            # A report that came before the kill is heard after it.
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    with pytest.raises(TrainingError, match="was killed, perhaps for want of memory"):
        ProcessFits(2, min_rows=0).fit_all(endless(learned), kill)
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Crowded(FitMember):
    """A fit for which the GPU has no memory: at first, or `always`."""

    folder: Path = Path()
    always: bool = False

    def __call__(self, report: ProgressCallback) -> bytes:
        seen = self.folder / self.label
        if self.always or not seen.exists():
            seen.touch()
            raise RuntimeError("CUDA error: out of memory")
        alone = len(workers_of(os.getppid())) == 1
        (self.folder / f"{self.label} {'alone' if alone else 'beside others'}").touch()
        return super().__call__(report)


def test_fits_that_the_gpu_has_no_memory_for_are_made_again_alone(learned, tmp_path, monkeypatch):
    always, two = False, ("trees", "network", "network")

    def crowded(family: str, *rest: Any, **more: Any) -> FitMember:
        if family == "network":
            return Crowded(family, *rest, **more, folder=tmp_path, always=always)
        return FitMember(family, *rest, **more)

    monkeypatch.setitem(model_types._COMBINATIONS, model_types.ENSEMBLE, two)
    task = FitTask(learned, "ensemble", 0, SMALL)
    (one,) = FitExecutor().fit_all([task], Reports())
    monkeypatch.setattr(fit_steps, "FitMember", crowded)
    (members,) = ProcessFits(2, min_rows=0).fit_all([task], Reports())
    assert [m.to_bytes() for m in members] == [m.to_bytes() for m in one]
    left = {path.name for path in tmp_path.iterdir()}
    networks = {f"network-{place}" for place in (1, 2)}
    assert left == networks | {f"{name} alone" for name in networks}
    always, alone = True, FitTask(learned, "network", 0, SMALL)
    with pytest.raises(TrainingError, match=r"^A fit failed: RuntimeError: CUDA error: out of"):
        ProcessFits(2, min_rows=0).fit_all([alone], Reports())


def test_a_full_disk_is_named(learned, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", full)
    task = FitTask(learned, "trees", settings=SMALL)
    with pytest.raises(TrainingError, match=r"files in .* cannot be made: No space .*TMPDIR"):
        ProcessFits(2, min_rows=0).fit_all([task], Reports())


def test_no_process_outlives_its_parent():
    """Nor does the parent import torch."""
    code = """
import sys
from tests.training.conftest import make_timings
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.process_fits import ProcessFits
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import learnable
endless = TrainingSettings().but("trees", rounds=10**6, patience=10**6)
def report(label, progress):
    print(label, "torch" in sys.modules, flush=True)
task = FitTask(learnable(make_timings(60)), "ensemble", 0, endless)
ProcessFits(2, min_rows=0).fit_all([task], report)
"""
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    ) as parent:  # fmt: skip
        assert parent.stdout.readline().split()[1] == "False"
        started = workers_of(parent.pid)
        assert started
        parent.kill()
    until = time.monotonic() + 60
    while running(started):
        assert time.monotonic() < until


def test_what_does_not_fit_into_memory_waits(learned, monkeypatch):
    monkeypatch.setattr(module, "available_bytes", lambda: 0)
    most, going = 0, 0
    submit, result = ProcessPool.submit, ProcessPool.result

    def begin(self: ProcessPool, job: Job) -> Any:
        nonlocal most, going
        going += 1
        most = max(most, going)
        return submit(self, job)

    def end(self: ProcessPool, future: Any) -> Any:
        nonlocal going
        going -= 1
        return result(self, future)

    monkeypatch.setattr(ProcessPool, "submit", begin)
    monkeypatch.setattr(ProcessPool, "result", end)
    tasks = [FitTask(learned, "trees", seed, SMALL) for seed in range(3)]
    assert len(ProcessFits(3, min_rows=0).fit_all(tasks, Reports())) == 3
    assert most == 1


def test_the_memory_that_is_free(tmp_path):
    system, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    assert available_bytes(system, group) > 1 << 60
    system.write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    assert available_bytes(system, group) == 4 << 20
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("3000000\n")
    assert available_bytes(system, group) == 4 << 20
    (group / "memory.max").write_text("4000000\n")
    assert available_bytes(system, group) == 1_000_000
    (group / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert available_bytes(system, group) == 1_500_000
