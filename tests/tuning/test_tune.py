"""A tuning from its beginning to its page, with workers that need no GPU."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diode_engine import registry
from diode_engine.collect.gpu_state import GpuState, GpuWatch
from diode_engine.collect.local import LocalExecutor, Setup
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError, TrainingError
from diode_engine.models.artifact import load_artifact
from diode_engine.problems.splits import held_out_by
from diode_engine.runs import find
from diode_engine.store import RunState, Store
from diode_engine.training.settings import TrainingSettings
from diode_engine.tuning import quick, rounds
from diode_engine.tuning.rounds import TuneRequest
from diode_engine.tuning.run import Tuned, tune
from tests.app.registered import register_model
from tests.samples import tile

WORKERS = Path(__file__).parents[1] / "collect"
COMMAND = (sys.executable, str(WORKERS / "scripted_worker.py"))
OFFERED = (
    Candidate.make("aten::mm"),
    *(tile(m, 64, 32, stages) for m in (16, 64, 128) for stages in (2, 3)),
)
SMALL = (
    TrainingSettings(lessons=160)
    .but("trees", rounds=30, max_depth=5, learning_rate=0.3, threads=1)
    .but("network", epochs=8, hidden=(16,), learning_rate=1e-2)
    .but("distilled", epochs=30, hidden=(48, 32), learning_rate=1e-2, averaging=0.98)
)
SETTINGS = quick.settings  # which the tests replace by SMALL
H100 = KNOWN["NVIDIA H100 80GB HBM3"]


class Clock:
    """Three seconds for each timing in a store, however busy the machine is, and a little for each
    look at it."""

    def __init__(self, store: Store) -> None:
        self.store, self.looks = store, 0

    def __call__(self) -> float:
        self.looks += 1
        with self.store.reads() as connection:
            timings = connection.exec_driver_sql("SELECT sum(timings) FROM tallies").scalar() or 0
        return 3.0 * timings + 0.001 * self.looks


@pytest.fixture(autouse=True)
def small(nothing_shipped, tmp_path, monkeypatch):
    """Nothing is shipped; few problems of few candidates; models of a second."""
    monkeypatch.setenv("DIODE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for module in ("training.distillation", "tuning.rounds"):
        monkeypatch.setattr(
            f"diode_engine.{module}.exhaustive_space", lambda problem, torch: OFFERED
        )
    monkeypatch.setattr(rounds, "DRAWN", 120)
    monkeypatch.setattr("diode_engine.collect.run.WRITE_SECONDS", 0.0)  # the clock reads them
    monkeypatch.setattr("diode_engine.training.confidence.MIN_CASES", 10_000)  # none is learned
    monkeypatch.setattr(quick, "_QUICK", SMALL)
    monkeypatch.setattr(quick, "settings", lambda *_: SMALL)
    for name in ("torch_version", "triton_version"):
        monkeypatch.setattr(registry.choice, name, lambda: None)


@pytest.fixture
def script(monkeypatch):
    def write(**more: Any) -> None:
        value = {"offered": [c.to_dict() for c in OFFERED], "fates": {}, "time_us": None, **more}
        monkeypatch.setenv("DIODE_SCRIPT", json.dumps(value))

    write()
    return write


def tuned(store: Store, *, minutes: float = 60.0, look: Any = None, **more: Any) -> Tuned:
    asked = {name: more.pop(name) for name in ("base", "own", "name") if name in more}
    usual: dict[str, Any] = {
        "executor": partial(
            LocalExecutor, (0,), setup=Setup(COMMAND), workers_per_gpu=2,
            watch=more.pop("watch", lambda: GpuWatch(None)),
        ),
        "look": look or (lambda gpu: None), "clock": Clock(store),
    }  # fmt: skip
    request = TuneRequest(minutes=minutes, **asked)
    return tune(store, request, more.pop("hardware", H200), "test", **usual | more)


def test_from_nothing_to_a_model_that_is_taken_and_a_page(tmp_path, script, monkeypatch):
    said: list[dict[str, Any]] = []
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(quick, "settings", lambda *of: asked.append(of) or SMALL)
    with Store.open(tmp_path / "s.db") as store:
        made = tuned(store, report=said.append)
        runs = find(store)
        result = store.result(made.run)
        table = store.read()
    assert [s.run.kind for s in runs if s.run.kind in ("tune", "train")] == ["train", "tune"]
    assert all(s.state is RunState.DONE for s in runs)
    assert made.promoted
    assert registry.best_for(H200).model == made.model
    assert result == made.document
    fractions = [progress["fraction"] for progress in said]
    assert fractions == sorted(fractions)
    assert 0 < fractions[-1] < 1
    learned = {p for p in table.problems if not held_out_by(p)}
    judged = {p for p in table.problems if held_out_by(p)}
    assert 0.15 < len(judged) / len(table.problems) < 0.35
    assert result["model"]["problems"] == len(learned)
    assert result["model"]["held_out_problems"] == len(judged)
    page = result["page"]
    assert page.startswith(f"# {made.model.reference} for NVIDIA H200\n")
    for part in ("from no model", "| ATen", "max-autotune", "It passed the gate", "doubling"):
        assert part in page
    # a quarter may be too few problems for a model
    assert [point["share"] for point in result["curve"]][-2:] == [0.5, 1.0]
    best = result["choosers"][0]["efficiency"]
    aten = next(row for row in result["choosers"] if row["chooser"].startswith("ATen"))
    assert best > aten["efficiency"] + 0.1
    ((minutes, base, seconds, lesson),) = asked  # the training is given the time that is left
    assert (minutes, base) == (60.0, None)
    assert seconds == pytest.approx(0.95 * 3600 - result["timing_seconds"], rel=0.02)
    assert lesson > 0


def test_a_slow_machine_learns_fewer_lessons_so_that_the_minutes_suffice():
    usual = SETTINGS(10.0, None, 150.0, None).lessons
    assert SETTINGS(10.0, None, 150.0, 0.001).lessons == usual  # it would be done early
    slow = SETTINGS(10.0, None, 150.0, 0.05).lessons
    assert SETTINGS(10.0, None, 75.0, 0.05).lessons == pytest.approx(slow / 2, abs=1)
    assert 0.05 * slow < 150 / 2 < 0.05 * usual  # what follows the lessons takes its time, too
    assert SETTINGS(10.0, None, -5.0, 0.05).lessons > 0


def test_from_another_gpu_s_model_the_tuned_one_is_better_and_both_are_on_the_page(
    tmp_path, script, monkeypatch
):
    with Store.open(tmp_path / "first.db") as store:
        script(time_us=5.0)  # of which nothing can be learned
        monkeypatch.setattr(quick, "has_xgboost", lambda: False)
        base = tuned(store, minutes=30.0).model
    assert load_artifact(base.folder).manifest.family == "network"
    copy = Path(shutil.copytree(base.folder, tmp_path / "copy"))
    manifest = copy / "manifest.json"
    manifest.write_text(manifest.read_text().replace(H200.name, H100.name))
    h100 = registry.register(copy)
    registry.remove(base, aliases=True)
    script()
    with Store.open(tmp_path / "s.db") as store:
        made = tuned(store, base=h100.reference)
        result = store.result(made.run)
    assert result["from_hardware"] == H100.name
    assert made.model.manifest.data.base == h100.manifest.identity
    assert made.model.manifest.hardware.name == H200.name
    names = [row["chooser"] for row in result["choosers"]]
    assert names[1] == f"{h100.reference} of {H100.name}, what it started from"
    first, before = (row["efficiency"] for row in result["choosers"][:2])
    assert first > before + 0.05
    against = result["verdict"]["against"]
    assert against == h100.reference  # and not ATen, which would be beaten by less


def test_a_model_taken_before_that_knows_none_of_the_products_is_not_on_the_page(tmp_path, script):
    before = register_model(tmp_path, "before", default=True)
    manifest = json.loads((before.folder / "manifest.json").read_text())
    manifest["coverage"]["op_types"] = ["int_mm int8"]
    (before.folder / "manifest.json").write_text(json.dumps(manifest))
    with Store.open(tmp_path / "s.db") as store:
        made = tuned(store, base=rounds.NONE)
    choosers = [row["chooser"] for row in made.document["choosers"]]
    assert choosers[0].startswith(made.model.reference)
    assert not any(chooser.startswith(before.reference) for chooser in choosers)


def test_one_that_was_stopped_keeps_its_timings_and_goes_on_with_the_time_that_is_left(
    tmp_path, script, monkeypatch
):
    monkeypatch.setattr("diode_engine.collect.run.HEARTBEAT_SECONDS", 0.0)  # told of each batch
    with Store.open(tmp_path / "s.db") as store:

        def stop(progress: dict[str, Any]) -> None:
            if progress["timings"] > 100:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tuned(store, report=stop)
        stopped = next(s for s in find(store) if s.run.kind == "tune")
        kept = len(store.read())
        assert stopped.state is RunState.CANCELLED
        assert "run the command again" in stopped.run.message
        assert all(s.state.ended for s in find(store))
        assert kept > 100
        made = tuned(store)
        table = store.read()
        assert len(table) > kept
        before = stopped.run.progress["timing_seconds"]
        assert made.document["timing_seconds"] - before < 0.7 * 60 * 60
        rows = {*zip(table.problem.tolist(), table.candidate.tolist(), strict=True)}
        assert len(rows) == len(table)  # nothing was timed twice


def test_a_run_that_was_asked_to_stop_stops(tmp_path, script):
    with Store.open(tmp_path / "s.db") as store:

        def ask(progress: dict[str, Any]) -> None:
            if progress["timings"]:
                store.ask_to_cancel(next(s.run.id for s in find(store) if s.run.kind == "tune"))

        with pytest.raises(KeyboardInterrupt):
            tuned(store, report=ask, minutes=1e6)
        stopped = next(s for s in find(store) if s.run.kind == "tune")
        assert stopped.state is RunState.CANCELLED
        assert all(s.state.ended for s in find(store))


def test_too_few_timings_are_told_and_kept(tmp_path, script, monkeypatch):
    with Store.open(tmp_path / "s.db") as store:
        problems = [Problem.make("mm", 16 * n, 64, 64, "bfloat16") for n in range(1, 7)]
        monkeypatch.setattr(rounds, "mixed", lambda *_: problems)
        with pytest.raises(TrainingError, match="too few"):
            tuned(store)
        run = next(s.run for s in find(store) if s.run.kind == "tune")
        assert run.state is RunState.FAILED
        assert 0 < len(store.read()) <= 6 * len(OFFERED)
        assert registry.list_models() == []


def test_a_lost_gpu_is_told_and_the_same_goes_on_on_another(tmp_path, script):
    fate = {str(OFFERED[3]): "crash"}
    script(fates=fate, lives=4, log=str(tmp_path / "log"))
    with Store.open(tmp_path / "s.db") as store:
        with pytest.raises(CollectionError, match=r"fallen off the bus.*run the command again"):
            tuned(store)
        assert len(store.read()) > 0
        script()
        assert tuned(store).promoted


def test_no_gpu_at_all_and_one_that_cannot_be_timed_on(tmp_path, script):
    script(dead_on_arrival=True)
    with Store.open(tmp_path / "s.db") as store:
        with pytest.raises(CollectionError, match="no GPU today"):
            tuned(store)
        rocm = replace(H200, backend="rocm", name="MI300X", arch="gfx942")
        with pytest.raises(CollectionError, match="NVIDIA GPUs only"):
            tuned(store, hardware=rocm)


def test_a_shared_throttled_gpu_is_told_and_what_it_disturbed_is_left_out(
    tmp_path, script, monkeypatch
):
    busy = GpuState(1200, 80, 500, ("hw_thermal_slowdown",), 97, 30 << 30)

    class Watch(GpuWatch):
        """Sees a throttled GPU for a while."""

        looks = 0

        def __init__(self) -> None:
            super().__init__(None)

        def add(self, gpu: int, name: str) -> None:
            pass

        def state(self, gpu: int) -> GpuState:
            self.looks += 1
            held = ("hw_thermal_slowdown",) if self.looks < 2 else ()
            return GpuState(1980, 40, 300, held, 99, 1 << 30)

    monkeypatch.setattr("diode_engine.collect.gpu_state.READ_SECONDS", 0.0)  # at each batch
    with Store.open(tmp_path / "s.db") as store:
        made = tuned(store, look=lambda gpu: busy, watch=Watch)
        all_of_them = len(store.read())
    document = made.document
    assert document["throttled"] > 0
    assert document["left_out"] >= document["throttled"]
    learned = document["model"]["timings"]
    assert learned < all_of_them - document["left_out"]
    page = document["page"]
    assert "## What disturbed it" in page
    assert "shared with others when the timing began: it was 97 % busy" in page
    assert "throttled when the timing began (hw_thermal_slowdown)" in page
    assert f"{document['throttled']:,} timings were taken while the GPU was throttled" in page


def test_uneven_launches_are_left_out(tmp_path, script):
    script(uneven=2.0)
    with Store.open(tmp_path / "s.db") as store:
        with pytest.raises(TrainingError, match="were left out"):
            tuned(store, minutes=2.0)
        assert len(store.read()) > 0


def test_a_program_s_own_products_come_first_and_the_model_learns_all_of_them(tmp_path, script):
    own = tuple(Problem.make("mm", 24 * n, 96, 640, "bfloat16") for n in range(1, 30))
    held = [p for p in own if held_out_by(p)]
    assert held
    with Store.open(tmp_path / "s.db") as store:
        made = tuned(store, own=own[:20], capture=lambda: own[20:])
        table = store.read()
        first = {table.problems[i] for i in table.problem[np.argsort(table.problem)]}
        captured = next(s for s in find(store) if s.run.kind == "collect" and s.run.id < 4)
    assert set(own) <= first
    assert captured.run.progress["problems"] > len(own)
    assert made.model.manifest.everything is True
    assert made.model.manifest.data.problems == len(first)
    assert "The program's own 29 products" in made.document["page"]


def test_members_that_disagree_come_early_and_every_second_one_is_as_drawn():
    problems = [Problem.make("mm", 64 * n, 64, 64, "bfloat16") for n in range(1, 9)]

    class Members:
        def predict_members_us(self, problem: Problem, candidates: Any) -> Any:
            n = len(candidates)
            one = np.full((2, n), 10.0)
            if problem.M == 64 * 6:  # each would take another one
                one[0, 0], one[1, 1], one[1, 0] = 1.0, 2.0, 30.0
            return one

    ordered = rounds.by_disagreement(problems, Members(), H200, "test")
    assert ordered[0].M == 64 * 6
    assert ordered[1].M == 64
    assert sorted(ordered, key=str) == sorted(problems, key=str)


def test_held_out_ones_are_spread_evenly_and_not_too_many(monkeypatch):
    monkeypatch.setattr(rounds, "MAX_JUDGED", 3)
    learned = [Problem.make("mm", 16 * n, 64, 64, "bfloat16") for n in range(1, 41)]
    judged = [Problem.make("mm", 16 * n, 32, 64, "bfloat16") for n in range(1, 41)]
    order = list(rounds.interleave(learned, judged))
    places = [i for i, p in enumerate(order) if p in judged]
    assert places == [2, 5, 8]
    assert len(order) == 43
