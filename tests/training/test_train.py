"""From timings in a store to a registered model that chooses well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from diode_engine import registry
from diode_engine.core.hardware import H200, KNOWN, Environment
from diode_engine.core.operand import DType
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure
from diode_engine.errors import TrainingError
from diode_engine.models import fit_network
from diode_engine.models.artifact import load_artifact
from diode_engine.models.fit_network import NetworkSettings
from diode_engine.models.fit_trees import TreesSettings
from diode_engine.models.fitting import FitProgress
from diode_engine.models.model_types import member_types
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import held_out_by, split
from diode_engine.runs import Job
from diode_engine.store import RunState, dataset_key
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.run import train_from_store
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.training.trainable_rows import learnable, one_environment, thin_rows
from tests.training.conftest import make_timings, train

NETWORK = NetworkSettings(hidden=(32,), epochs=6, problems=8, rows=8, learning_rate=1e-2)
SMALL = TrainingSettings(
    {
        "trees": TreesSettings(rounds=60, learning_rate=0.2, max_depth=4, threads=1),
        "network": NETWORK,
        "distilled": replace(NETWORK, hidden=(32, 16), epochs=20),
        "cascade": replace(NETWORK, hidden=(32, 16), epochs=20),
    },
    lessons=90,
)
OTHER = Environment(replace(H200, name="NVIDIA H100"), "570", "2.13.0", "3.7.1")
H100 = replace(OTHER, hardware=KNOWN["NVIDIA H100 80GB HBM3"])
small = partial(TrainingRequest, settings=SMALL)


def test_timings_may_come_from_a_collection_of_files(store, timings):
    run = store.start_run("collect", {"problems": 3, "file": ["mine.json", "yours.json"]})
    store.add(run, timings.take(np.arange(4)))
    trained = train_from_store(store, TrainingRequest(family="trees", settings=SMALL))
    assert trained.model.manifest.data.runs == ("import 1", f"collect {run}")
    assert trained.model.manifest.data.files == ("timings.json",)


@pytest.mark.parametrize(
    ("family", "members"),
    [
        ("trees", ["trees"]),
        ("network", ["network"]),
        ("ensemble", ["trees", "network", "network", "network"]),
        ("distilled", ["distilled"]),
        ("cascade", ["cascade"]),
    ],
)
def test_each_family_is_trained_and_registered(family, members, store, timings, monkeypatch):
    told: list[str] = []
    tell = Job.tell

    def listen(job: Job, progress: Mapping[str, Any]) -> None:
        told.append(progress.get("doing", ""))
        tell(job, progress)

    monkeypatch.setattr(Job, "tell", listen)
    steps: list[tuple[str, FitProgress]] = []
    trained = train_from_store(
        store,
        TrainingRequest(family=family, settings=SMALL),
        report=lambda label, step: None if step is None else steps.append((label, step)),
    )
    assert trained.model == registry.resolve(f"{family}@1")
    manifest = trained.model.manifest
    assert manifest.family == family
    assert [member["family"] for member in manifest.members] == members
    fitted = [f"{member}-{place}" for place, member in enumerate(member_types(family))]
    shown = list(dict.fromkeys(member for member, _ in steps))
    assert shown[: len(fitted)] == fitted
    assert all("fold" in member for member in shown[len(fitted) :])  # of the confidence

    learned, held_out = split(learnable(timings))
    assert manifest.hardware == H200
    assert (manifest.torch, manifest.triton) == (("2.13.0",), ("3.7.1",))
    assert manifest.data.datasets == (dataset_key(learned), dataset_key(timings))
    assert manifest.data.runs == ("import 1",)
    assert manifest.data.files == ("timings.json",)
    assert manifest.data.timings == trained.timings == len(learned)
    assert manifest.data.problems == trained.problems == len(set(learned.problem.tolist()))
    assert manifest.coverage.kernels == ("mm aten::mm", "mm triton::mm")  # no features of cutlass
    assert manifest.metrics["problems"] == trained.held_out_problems
    assert trained.held_out_problems == len(set(held_out.problem.tolist()))
    # better than always taking the library's kernel, whose time follows another rule
    assert manifest.metrics["efficiency"] > manifest.metrics["efficiency_of_others"]["ATen"]
    (run,) = [run for run in store.runs() if run.kind == "train"]
    assert run.state is RunState.DONE
    assert run.spec["family"] == family
    assert run.spec["trees.rounds"] == 60
    assert "trees.l2" not in run.spec
    assert run.message == f"registered as {family}@1"
    curves = store.curves(run.id)
    for member in shown:
        epochs, _ = curves[f"{member}/objective"]
        progress = [p for of, p in steps if of == member]
        assert epochs.tolist() == [p.step for p in progress]
        assert curves[f"{member}/efficiency"][1].tolist() == [p.efficiency for p in progress]
        assert (
            curves[f"{member}/train_objective"][1][-1] < curves[f"{member}/train_objective"][1][0]
        )
    if family == "distilled":  # the run shows how many labels are made
        assert "makes labels for distilled-4: 0 parts left" in told
        assert "makes labels for distilled-4, fold 1 of 3: 0 parts left" in told
    result = store.result(run.id)
    assert result["identity"] == manifest.identity
    assert result["settings"]["trees"]["rounds"] == 60


def predicted(model: registry.ModelVersion, timings: TimingTable) -> np.ndarray:
    return Predictor.load(model.folder).predict_table(timings)


@pytest.mark.parametrize("family", ["trees", "network"])
def test_a_seed_gives_one_model_and_another_seed_another(family, timings):
    first, again, other = (train(timings, small(family, seed=seed)).model for seed in (1, 1, 2))
    assert (first.version, again.version) == (1, 2)
    assert first.manifest.identity == again.manifest.identity
    assert first.manifest.metrics == again.manifest.metrics
    assert first.manifest.identity != other.manifest.identity


def test_the_model_never_sees_what_is_held_out(timings):
    """Times of held-out problems change nothing in the model."""
    _, held_out = split(timings)
    away = np.isin(timings.problem, held_out.problem)
    spoilt = replace(timings, min_us=np.where(away, timings.min_us * 1000, timings.min_us))
    first = train(timings, small("network")).model
    second = train(spoilt, small("network")).model
    assert first.manifest.identity == second.manifest.identity
    assert first.manifest.metrics["log_rmse"] < 1 < second.manifest.metrics["log_rmse"]


def test_everything_is_trained_on_and_the_metrics_stay_honest(timings):
    honest = train(timings, small("trees"))
    shipped = train(timings, small("trees", everything=True))
    assert shipped.problems == honest.problems + honest.held_out_problems
    assert shipped.model.manifest.metrics == honest.model.manifest.metrics
    assert shipped.model.manifest.identity != honest.model.manifest.identity
    # How sure it is was learned with the first: only what lies near its problems is known anew.
    first, second = (
        load_artifact(trained.model.folder).confidence for trained in (honest, shipped)
    )
    np.testing.assert_array_equal(first.weight, second.weight)
    assert (first.places.shape[1], second.places.shape[1]) == (honest.problems, shipped.problems)
    assert (honest.model.manifest.everything, shipped.model.manifest.everything) == (False, True)
    assert "has seen all problems" in shipped.model.manifest.notes
    assert "has not seen" in honest.model.manifest.notes


def test_timings_of_another_gpu_or_software_are_left_out(timings):
    older = Environment(H200, "570", "2.13.0", "3.6.0")
    both = TimingTable.joined(
        [timings, make_timings(20, environment=older), make_timings(environment=OTHER)]
    )
    trained = train(both, small("trees", hardware="nvidia-h200"))
    alone = train(timings, small("trees"))
    assert trained.model.manifest.identity == alone.model.manifest.identity
    assert trained.model.manifest.triton == ("3.7.1",)
    assert list(trained.left_out) == [
        "NVIDIA H100, torch 2.13.0, Triton 3.7.1", "NVIDIA H200, torch 2.13.0, Triton 3.6.0",
    ]  # fmt: skip
    assert alone.left_out == {}
    with pytest.raises(TrainingError, match="no timings of a GPU named 'A100'"):
        train(both, small(hardware="A100"))


def test_a_model_of_all_gpus(timings):
    """One model learns from the timings of both GPUs, and predicts for each with its own facts."""
    slower = make_timings(60, environment=H100)
    slower = replace(slower, min_us=slower.min_us * 2)
    a100 = replace(OTHER, hardware=KNOWN["NVIDIA A100-SXM4-80GB"])
    older_gpu = make_timings(10, environment=a100)
    trained = train(TimingTable.joined([timings, slower, older_gpu]), small("trees"))
    manifest = trained.model.manifest
    assert manifest.hardware == H200
    assert [record.hardware for record in manifest.gpus] == [H200, H100.hardware]
    assert sum(record.timings for record in manifest.gpus) == manifest.data.timings
    assert all(0.5 < record.metrics["efficiency"] <= 1 for record in manifest.gpus)
    assert manifest.metrics == manifest.gpus[0].metrics
    assert list(trained.left_out) == ["NVIDIA A100-SXM4-80GB, torch 2.13.0, Triton 3.7.1"]
    problem, candidates = timings.problems[0], timings.candidates[:7]
    ours, theirs = (
        Predictor.load(trained.model.folder, gpu).predict_us(problem, candidates)
        for gpu in (H200, H100.hardware)
    )
    assert np.all(theirs > 1.3 * ours)
    rows = Predictor.load(trained.model.folder).predict_table(TimingTable.joined([timings, slower]))
    n = len(timings)
    np.testing.assert_allclose(rows[n : n + 7], theirs, rtol=1e-5)


def test_the_figures_of_a_gpu_are_those_of_its_own_held_out_problems(timings):
    """Also where another GPU has the most timings of all problems, or a GPU has no others."""
    there = replace(make_timings(environment=H100), min_us=timings.min_us * 2)
    learned, held_out = split(there)
    few = timings.take(~np.isin(timings.problem, np.unique(learned.problem)[:3]))
    manifest = train(
        TimingTable.joined([few, learned]), small("trees", everything=True)
    ).model.manifest
    assert [record.hardware for record in manifest.gpus] == [H200, H100.hardware]
    assert [bool(record.metrics) for record in manifest.gpus] == [True, False]
    assert manifest.metrics == manifest.gpus[0].metrics
    for everything in (False, True):
        made = train(
            TimingTable.joined([timings, held_out]), small("trees", everything=everything)
        ).model
        own = split(timings)[1].take(split(timings)[1].failure == 0)
        assert made.manifest.metrics["problems"] == own.count_problems()


def test_another_driver_is_the_same_environment(timings):
    newer = replace(timings, environments=(replace(timings.environments[0], driver="580"),))
    both = TimingTable.joined([timings.take(timings.problem < 40), newer.take(newer.problem >= 40)])
    assert len(one_environment(both)) == len(timings)


def test_a_model_that_can_say_nothing_of_what_is_held_out_has_no_metrics(timings):
    """As after the ten problems of a tutorial."""
    others = tuple(
        replace(p, dtype=DType.FLOAT16, out_dtype=DType.FLOAT16) if held_out_by(p) else p
        for p in timings.problems
    )
    assert DType.FLOAT16 not in {p.dtype for p in timings.problems}
    one = replace(timings, problems=others)
    two = TimingTable.joined([one, replace(one, environments=(H100,))])
    for table, everything, gpus in ((one, False, 0), (one, True, 0), (two, False, 2)):
        made = train(table, small("network", everything=everything))
        manifest = made.model.manifest
        assert (manifest.metrics, len(manifest.gpus)) == ({}, gpus)
        assert not any(record.metrics for record in manifest.gpus)
        assert "There are no metrics" in manifest.notes
        assert "has no prediction" in manifest.notes


def test_too_little_to_learn_from_is_a_sentence(timings):
    def message(table: TimingTable, **options: Any) -> str:
        with pytest.raises(TrainingError) as raised:
            train(table, small(**options))
        return str(raised.value)

    assert "no timings" in message(timings.take(timings.problem < 0))
    assert "too few" in message(timings.take(timings.problem < 1))
    learned, held_out = split(timings)
    few = np.isin(timings.problem, [*set(learned.problem.tolist())][:3])
    enough_to_judge = np.isin(timings.problem, held_out.problem)
    assert "3 problems to learn from are too few" in message(timings.take(few | enough_to_judge))
    failed = np.full(len(timings), FAILURES.index(Failure.CRASH) + 1, np.uint8)
    nothing = np.full(len(timings), np.nan)
    assert "0 are held out" in message(replace(timings, min_us=nothing, failure=failed))
    assert "no family 'forest'" in message(timings, family="forest")
    assert registry.list_models() == []


@pytest.mark.parametrize(
    ("raised", "state"),
    [(KeyboardInterrupt, RunState.CANCELLED), (ValueError("why"), RunState.FAILED)],
)
def test_a_run_that_ends_early_says_so_and_registers_nothing(raised, state, store):
    def report(label: str, progress: FitProgress | None) -> None:
        raise raised

    with pytest.raises((KeyboardInterrupt, ValueError)):
        train_from_store(store, TrainingRequest(settings=SMALL), report=report)
    (run,) = [run for run in store.runs() if run.kind == "train"]
    assert run.state is state
    assert run.message == ("why" if state is RunState.FAILED else "stopped by the user")
    assert registry.list_models() == []


def test_a_request_to_stop_ends_the_training(store, monkeypatch):
    check, beat_now = Job.check, Job._beat
    monkeypatch.setattr(Job, "check", lambda job: (beat_now(job), check(job)))

    def report(label: str, progress: FitProgress | None) -> None:
        assert progress is not None
        assert progress.step <= 2
        if progress.step == 2:
            store.ask_to_cancel(store.runs()[-1].id)

    with pytest.raises(KeyboardInterrupt):
        train_from_store(store, TrainingRequest(settings=SMALL), report=report)
    run = store.runs()[-1]
    assert (run.kind, run.state) == ("train", RunState.CANCELLED)
    assert registry.list_models() == []


def test_the_run_shows_how_far_it_is(store, monkeypatch):
    monkeypatch.setattr("diode_engine.training.run.WRITE_SECONDS", 0)
    seen: list[Any] = []

    def report(label: str, progress: FitProgress | None) -> None:
        (run,) = [run for run in store.runs() if run.kind == "train"]
        assert run.state is RunState.RUNNING
        seen.append(run.progress)

    train_from_store(store, TrainingRequest(family="trees", settings=SMALL), report=report)
    assert seen[0]["doing"] == "makes the features of the kernels"
    assert [progress["step"] for progress in seen[1:4]] == [1, 2, 3]
    assert seen[1]["member"] == "trees-0"
    assert seen[1]["steps"] == 60
    assert seen[1]["efficiency"] > 0


def test_the_default_is_what_a_device_gets(timings):
    chosen = train(timings, small("trees", name="mine", default=True)).model
    train(timings, small("trees", name="later"))
    match = registry.best_for(H200)
    assert match.model == chosen


def test_a_training_that_was_cut_short_goes_on_where_it_was(store, timings, monkeypatch):
    always = partial(Checkpoints, seconds=0)
    monkeypatch.setattr("diode_engine.training.run.Checkpoints", always)
    whole = train(timings, small("network", name="whole")).model
    request = TrainingRequest(family="network", settings=SMALL)
    first: list[tuple[str, int]] = []

    def stop(label: str, progress: FitProgress | None) -> None:
        if progress is not None:
            first.append((label, progress.step))
        if len(first) == 8:  # in the second of the confidence's fits
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_from_store(store, request, report=stop)
    made: list[int] = []
    epoch = fit_network._NetworkFit.epoch
    monkeypatch.setattr(fit_network._NetworkFit, "epoch", lambda fit: made.append(1) or epoch(fit))
    trained = train_from_store(store, request)
    # 6 epochs of the model and 3 times 3 of the confidence, without the 8 before
    assert len(made) == 6 + 9 - 8
    assert trained.model.manifest.identity == whole.manifest.identity
    run = store.runs()[-1]
    assert store.curves(run.id)["network-0, fold 2 of 3/objective"][0].tolist() == [1, 2, 3]
    assert not store.location.with_name(f"{store.location.name}-checkpoints").exists()


def test_a_problem_with_many_timings_teaches_with_its_fastest_and_some_others(timings):
    ok = learnable(timings)
    few = thin_rows(ok, 3, seed=1)
    counts = np.bincount(few.problem, minlength=len(few.problems))
    assert np.array_equal(counts, np.minimum(np.bincount(ok.problem, minlength=len(counts)), 3))
    for problem in np.unique(ok.problem):
        assert ok.time_us[ok.problem == problem].min() in few.time_us[few.problem == problem]
    others = thin_rows(ok, 3, seed=2)
    assert not np.array_equal(few.time_us, others.time_us)
    assert np.array_equal(few.time_us, thin_rows(ok, 3, seed=1).time_us)
    assert len(thin_rows(ok, 100)) == len(ok)
