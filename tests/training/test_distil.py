"""Distillation, fine-tuning and the search, on made-up timings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from diode_engine import features, registry
from diode_engine.core.hardware import H200
from diode_engine.core.operators import MM
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models import blas
from diode_engine.models.artifact import Artifact, load_artifact
from diode_engine.models.coverage import Coverage, kernel
from diode_engine.models.fit_network import NetworkSettings
from diode_engine.models.fit_trees import TreesSettings
from diode_engine.models.fitting import Examples, ProgressCallback, efficiency
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import Matrix, TimingModel, answers_of, prediction_of
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.problems.splits import split
from diode_engine.training.correction import corrected
from diode_engine.training.distillation import distillation_labels, drawn_problems, with_timings
from diode_engine.training.fit_jobs import LabelProblems
from diode_engine.training.fit_pool import Arrays
from diode_engine.training.search import Trial, search
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.trainable_rows import fitted_and_watched, learnable
from tests.training.conftest import ENVIRONMENT, fit, make_timings, train

SMALL = TrainingSettings(
    {
        "trees": TreesSettings(rounds=60, learning_rate=0.2, max_depth=4, threads=1),
        "network": NetworkSettings(hidden=(32,), epochs=12, problems=8, rows=8, learning_rate=1e-2),
        "distilled": NetworkSettings(
            hidden=(32, 16), epochs=40, problems=16, rows=16, learning_rate=1e-2, averaging=0.98
        ),
    },
    lessons=300,
)
small = partial(TrainingRequest, settings=SMALL)


@pytest.fixture(scope="module")
def learned(timings):
    return split(learnable(timings))[0]


def test_problems_are_drawn_of_what_a_model_covers():
    types = ("bfloat16", "tf32")
    op_types = tuple(f"{op} {of}" for op in ("mm", "addmm") for of in types)
    coverage = Coverage(("mm aten::mm", "addmm triton::mm"), types, op_types)
    drawn = drawn_problems(coverage, 50, seed=3)
    assert len(drawn) == len(set(drawn)) == 50
    assert {p.op for p in drawn} == {"mm", "addmm"}
    assert {str(p.dtype) for p in drawn} == {"bfloat16", "float32"}
    assert all(p.allow_tf32 for p in drawn if p.dtype == "float32")
    assert drawn == drawn_problems(coverage, 50, seed=3) != drawn_problems(coverage, 50, seed=4)


def test_lessons_are_what_the_teacher_says_of_the_space(learned):
    teacher = fit(learned, "ensemble", settings=SMALL)
    coverage = Coverage.make(learned)
    problems = drawn_problems(coverage, 6, seed=0)
    taught = distillation_labels(teacher, coverage, [(problem, H200) for problem in problems])
    assert len(taught.starts) == 6
    wanted = answers_of(teacher, taught.x)
    np.testing.assert_allclose(taught.heads, wanted, atol=1e-5)
    aten = taught.x[:, features.NAMES.index("aten")]
    assert np.add.reduceat(aten, taught.starts).tolist() == [1] * 6
    known = taught.x[:, features.NAMES.index("triton")]
    assert np.all(aten + known == 1)  # nothing of templates that were not timed

    timed = Examples.make(learned, H200)
    both = with_timings(taught, answers_of(teacher, timed.x), timed)
    assert len(both.starts) == 6 + len(timed.starts)
    measured = both.heads[:, len(taught.x) :]
    np.testing.assert_allclose(measured.mean(axis=0), timed.log_us, atol=1e-5)
    spread = answers_of(teacher, timed.x).std(axis=0)
    np.testing.assert_allclose(measured.std(axis=0), spread, atol=1e-5)


class Watched:
    """A member that notes how many threads BLAS has whenever it is asked."""

    def __init__(self, member: TimingModel) -> None:
        self._member = member
        self.threads: set[int] = set()

    def answers(self, x: Matrix) -> Matrix:
        self.threads |= {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}
        return self._member.answers(x)


def test_a_teacher_is_asked_with_blas_on_one_thread(learned):
    """A problem's rows are few: threads that wait for each other would take most of the time."""
    teacher: Any = Watched(fit(learned, "trees", settings=SMALL)[0])
    coverage = Coverage.make(learned)
    blas._libraries.cache_clear()  # another test may have loaded one since
    with threadpool_limits(2, user_api="blas"):
        distillation_labels(
            (teacher,), coverage, [(p, H200) for p in drawn_problems(coverage, 2, seed=0)]
        )
    assert teacher.threads == {1}


def test_lessons_have_many_loads_a_thread_only_where_they_are_covered(learned, monkeypatch):
    monkeypatch.setattr("diode_engine.training.distillation.exhaustive_space", exhaustive_space)
    teacher = fit(learned, "trees", settings=SMALL)
    problem = Problem.make("mm", 64, 512, 512, "bfloat16")

    def taught(*many: bool) -> bool:
        """Whether a lesson's loads are more than 24, or 4 in an unpipelined loop, without wgmma."""
        coverage = Coverage(
            tuple(kernel(MM, "triton::mm", many=each) for each in many),
            ("bfloat16",),
            ("mm bfloat16",),
        )
        x = distillation_labels(teacher, coverage, [(problem, H200)]).x
        value = {name: x[:, i] for i, name in enumerate(features.NAMES)}
        loads = 2 ** value["log2_loads_a"] + 2 ** value["log2_loads_b"]
        return bool(((loads > np.where(value["stages"] > 1, 24, 4)) & (value["wgmma"] == 0)).any())

    assert not taught(False)
    assert taught(False, True)


@pytest.mark.parametrize("least", [1, 10_000])
def test_every_timed_problem_is_among_the_lessons(learned, monkeypatch, least):
    asked: list[Problem] = []

    def watched(self: LabelProblems, report: ProgressCallback) -> Arrays:
        asked.extend(problem for problem, _ in self.problems)
        return answer(self, report)

    answer = LabelProblems.__call__
    drawn = [Problem.make("mm", 64, 64, 16 * k, "bfloat16") for k in range(1, 9)]
    monkeypatch.setattr(LabelProblems, "__call__", watched)
    monkeypatch.setattr("diode_engine.training.distillation.mixed", lambda count, seed: drawn)
    quick = replace(SMALL.with_fewer_steps(20), lessons=least)
    fit(learned, "distilled", settings=quick)
    timed = {learned.problems[i] for i in set(learned.problem.tolist())}
    assert set(asked) == (timed if least == 1 else timed | set(drawn))


def shifted(table: TimingTable, problems: np.ndarray, factor: float) -> TimingTable:
    """The table where large tiles are slower on these problems."""
    large = np.array([(c.config.get("BLOCK_M") or 0) == 128 for c in table.candidates])
    rows = np.isin(table.problem, problems) & large[table.candidate]
    return replace(table, min_us=np.where(rows, table.min_us * factor, table.min_us))


def geomean(model: registry.ModelVersion | Artifact, table: TimingTable) -> float:
    artifact = model if isinstance(model, Artifact) else load_artifact(model.folder)
    us = Predictor(artifact).predict_table(table)
    judged = Examples.make(table, H200)
    order = np.argsort(table.problem, kind="stable")
    return efficiency(judged, np.log(us[order]).astype(np.float32))


def draw_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lessons are on plain products of sizes like those of the timings."""
    rng = np.random.default_rng(8)
    usual = [
        Problem.make("mm", *(int(2**v) for v in rng.uniform(4, 12, 3)), "bfloat16")
        for _ in range(SMALL.lessons)
    ]
    monkeypatch.setattr("diode_engine.training.distillation.mixed", lambda count, seed: usual)


def test_tuning_learns_what_is_the_users_and_keeps_the_rest(timings, monkeypatch):
    draw_small(monkeypatch)
    base = load_artifact(train(timings, small("ensemble", seed=1)).model.folder)
    rows = np.array([problem.M for problem in timings.problems])
    theirs = np.flatnonzero(rows >= 512)  # where large tiles turn out to be slow
    world = learnable(shifted(timings, theirs, 4.0))
    mine = world.take(np.isin(world.problem, theirs))
    rest = world.take(rows[world.problem] < 128)
    tuned = train(mine, small(base=base)).model
    assert tuned.manifest.everything is False
    for seen, said in ((True, "has seen them"), (None, "may have seen them")):
        spoilt = replace(base, manifest=replace(base.manifest, everything=seen))
        manifest = train(mine, small(base=spoilt)).model.manifest
        assert manifest.everything is seen
        assert said in manifest.notes
    assert tuned.reference == "ensemble@2"
    assert tuned.manifest.family == "distilled"
    assert tuned.manifest.data.base == base.manifest.identity
    unseen = split(mine)[1]
    assert tuned.manifest.metrics["efficiency_of_base"] == pytest.approx(geomean(base, unseen))
    assert geomean(tuned, unseen) > geomean(base, unseen) + 0.1
    assert geomean(tuned, rest) > geomean(base, rest) - 0.05


def test_a_base_that_knows_none_of_the_products_has_no_figure_on_them(timings, monkeypatch):
    draw_small(monkeypatch)
    base = load_artifact(train(timings, small("trees")).model.folder)
    assert base.manifest.coverage.types == ("bfloat16",)
    mine = replace(
        timings,
        problems=tuple(Problem.make("mm", p.M, p.N, p.K, "float16") for p in timings.problems),
    )
    tuned = train(mine, small(base=base)).model.manifest
    assert tuned.coverage.types == ("bfloat16", "float16")
    assert tuned.metrics["efficiency"] > 0
    assert "efficiency_of_base" not in tuned.metrics


def test_what_a_tuning_leaves_out_is_counted(timings, monkeypatch):
    draw_small(monkeypatch)
    base = load_artifact(train(timings, small("trees")).model.folder)
    older = make_timings(10, environment=replace(ENVIRONMENT, triton="3.6.0"))
    mine = timings.take(np.array([p.M >= 512 for p in timings.problems])[timings.problem])
    tuned = train(TimingTable.joined([mine, older]), small(base=base))
    assert list(tuned.left_out) == ["NVIDIA H200, torch 2.13.0, Triton 3.6.0"]
    assert tuned.model.manifest.triton == ("3.7.1",)


def test_a_model_of_another_generation_is_not_tuned(timings):
    base = load_artifact(train(timings, small("trees")).model.folder)
    a100 = replace(H200, name="A100", arch="8.0")
    other = replace(base, manifest=replace(base.manifest, hardware=a100))
    with pytest.raises(TrainingError, match="made for A100, the timings are of NVIDIA H200"):
        train(timings, small(base=other))


def test_a_model_of_a_gpu_like_it_is_corrected_where_few_problems_are_timed(timings, monkeypatch):
    draw_small(monkeypatch)
    base = load_artifact(train(timings, small("ensemble", seed=1)).model.folder)
    like = replace(H200, name="Like it", memory_gb_s=3352)
    there = replace(timings, environments=(replace(timings.environments[0], hardware=like),))
    rows = np.array([problem.M for problem in timings.problems])
    theirs = np.flatnonzero(rows >= 512)  # where large tiles turn out to be slow there
    world = learnable(shifted(there, theirs, 4.0))
    few = world.take(world.problem % 4 != 0)
    tuned = train(few, small(base=base)).model
    assert tuned.manifest.hardware == like
    assert tuned.manifest.data.base == base.manifest.identity
    fitted, watched, unseen = (
        Examples.make(part, like)
        for part in (*fitted_and_watched(few, seed=0), world.take(world.problem % 4 == 0))
    )
    members = corrected(base.members, fitted, watched)
    assert len(answers_of(members, unseen.x)) == len(answers_of(base.members, unseen.x))
    before, after = (
        efficiency(unseen, prediction_of(each, unseen.x)) for each in (base.members, members)
    )
    assert after > before + 0.1


def trials_of(learned: TimingTable, count: int, path: Path, **more: Any) -> tuple[Any, list[Trial]]:
    told: list[Trial] = []
    settings = SMALL.but("trees", rounds=15)
    found = search(
        learned, "trees", count, path, settings=settings, report_trial=told.append, **more
    )
    return found, told


def test_a_search_begins_with_what_it_is_given_and_goes_on(learned, tmp_path):
    path = tmp_path / "search.db"
    _, first = trials_of(learned, 2, path)
    assert [trial.number for trial in first] == [1, 2]
    assert first[0].parameters["trees.max_depth"] == SMALL.find("trees").max_depth
    assert first[0].parameters["trees.learning_rate"] == SMALL.find("trees").learning_rate
    assert first[1].parameters != first[0].parameters

    class Stopped(Exception):
        pass

    ended: set[str] = set()

    def stop(label: str, progress: object) -> None:
        if progress is not None:
            assert label == "trees-0, trial 3, fold 1 of 3"
            raise Stopped
        ended.add(label)

    with pytest.raises(Stopped):
        trials_of(learned, 3, path, report=stop)
    assert ended == {f"trees-0, trial {i}, fold {k} of 3" for i in (1, 2) for k in (1, 2, 3)}
    found, all_of_them = trials_of(learned, 3, path)
    assert all_of_them[:2] == first
    assert len({str(trial.parameters) for trial in all_of_them}) == 3
    best = max(all_of_them, key=lambda trial: trial.efficiency or 0)
    assert found.find("trees").max_depth == best.parameters["trees.max_depth"]
    assert found.find("trees").focus == best.parameters["trees.focus"]
    assert found.find("trees").rounds == 15
    assert found.find("network") == SMALL.find("network")


def test_where_all_is_timed_nothing_is_tuned(timings, monkeypatch):
    base = load_artifact(train(timings, small("trees")).model.folder)
    monkeypatch.setattr(
        "diode_engine.training.distillation.mixed", lambda count, seed: list(timings.problems)
    )
    with pytest.raises(TrainingError, match="problems of every kind"):
        train(timings, small(base=base))
