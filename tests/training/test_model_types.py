"""A family of models is a module and a line in a table; no other code names a family's class."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import diode_engine
from diode_engine import registry
from diode_engine.core.hardware import H200
from diode_engine.errors import ModelError
from diode_engine.models import model_types
from diode_engine.models.artifact import load_artifact, load_member
from diode_engine.models.explain import explain
from diode_engine.models.model_types import ModelType
from diode_engine.models.predictor import Predictor
from diode_engine.problems.splits import split
from diode_engine.training.cross_validation import cross_validate
from diode_engine.training.run import train_from_store
from diode_engine.training.settings import TrainingRequest, TrainingSettings
from diode_engine.validation import evaluate
from tests.training import scaled_base
from tests.training.conftest import train

ROOT = Path(diode_engine.__file__).parents[1]
NAME = "scaled-base"
LINE = ModelType(
    NAME, "tests.training.scaled_base:ScaledBase", "tests.training.scaled_base:FITTING"
)


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    """The line in the table."""
    monkeypatch.setitem(model_types.MODEL_TYPES, NAME, LINE)


def test_a_new_family_is_trained_written_loaded_and_registered(store):
    trained = train_from_store(
        store, TrainingRequest(family=NAME, settings=TrainingSettings(rows=100))
    )
    assert trained.model == registry.resolve(f"{NAME}@1")
    assert registry.best_for(H200).model == trained.model  # type: ignore[union-attr]
    manifest = trained.model.manifest
    assert manifest.family == NAME
    assert [member["file"] for member in manifest.members] == [f"{NAME}-0.safetensors"]
    artifact = load_artifact(trained.model.folder)
    assert isinstance(artifact.members[0], scaled_base.ScaledBase)
    assert artifact.members[0].slope == 1.0
    assert artifact.confidence is not None
    (run,) = [run for run in store.runs() if run.kind == "train"]
    assert f"{NAME}-0/log_rmse" in store.curves(run.id)
    result = store.result(run.id)
    assert result["settings"][NAME] == {"slope": 1.0, "seed": 0}


def test_its_settings_are_given_told_and_searched(store):
    steep = TrainingSettings().but(NAME, slope=1.25)
    trained = train_from_store(store, TrainingRequest(family=NAME, settings=steep))
    (member,) = load_artifact(trained.model.folder).members
    assert isinstance(member, scaled_base.ScaledBase)
    assert member.slope == 1.25
    assert store.runs()[-1].spec[f"{NAME}.slope"] == 1.25
    tried: list[float] = []
    train_from_store(
        store,
        TrainingRequest(family=NAME, trials=3, settings=steep),
        report_trial=lambda trial: tried.append(trial.parameters[f"{NAME}.slope"]),
    )
    assert tried[0] == 1.25
    assert len(set(tried)) == 3
    assert all(0.5 <= slope <= 1.5 for slope in tried)


def test_a_training_says_what_it_does_before_and_after_the_fits(timings):
    said: list[str] = []
    train(
        timings,
        TrainingRequest(family=NAME),
        report=lambda member, _: said.append("fit"),
        begin_phase=said.append,
    )
    assert said[0] == "makes the features of the kernels"
    assert "fit" in said
    assert said[-1] == "judges the model on the held-out problems"


def test_it_predicts_is_validated_and_explained(timings):
    model = train(timings, TrainingRequest(family=NAME)).model
    predictor = Predictor.load(model.folder)
    problem, candidates = timings.problems[0], timings.candidates[:6]
    us = predictor.predict_us(problem, candidates)
    assert np.isfinite(us).all()
    ranking = predictor.predict(problem, candidates)
    assert us[ranking.order].tolist() == sorted(us.tolist())
    assert ranking.confidence is not None
    assert predictor.predict_members_us(problem, candidates).shape == (1, 6)
    report = evaluate(split(timings)[1], predictor, name=model.reference)
    assert report.choosers[0].answered == report.problems
    found = explain(predictor, problem, *(candidates[i] for i in ranking.order[[0, -1]]))
    # only the roofline's group has the base time
    assert found.factors["roofline"] == pytest.approx(found.candidate_us / found.baseline_us)


def test_it_is_a_member_of_an_ensemble_and_a_teacher(timings, monkeypatch):
    monkeypatch.setitem(model_types._COMBINATIONS, "ensemble", (NAME, NAME))
    settings = TrainingSettings(lessons=90).but(
        "distilled", hidden=(8,), epochs=2, problems=8, rows=8
    )
    model = train(timings, TrainingRequest(family="ensemble", settings=settings)).model
    assert [m["family"] for m in model.manifest.members] == [NAME, NAME]
    distilled = train(timings, TrainingRequest(family="distilled", settings=settings)).model
    (member,) = load_artifact(distilled.folder).members
    predictor = Predictor.load(distilled.folder)
    assert member.family == "distilled"
    answers = predictor.predict_members_us(timings.problems[0], timings.candidates[:6])
    assert answers.shape == (2, 6)  # one for each of its teacher's members


def test_its_way_of_being_made_is_cross_validated(timings):
    report = cross_validate(timings, "folds", family=NAME)
    assert report.family == NAME
    assert len(report.parts) == 5


def test_it_can_be_trained_by_its_name_and_is_refused_where_its_file_is_wrong():
    alone, together = ("trees", "network", NAME), ("ensemble", "networks", "large-ensemble")
    assert model_types.trainable_names() == (*alone, *together, "distilled", "cascade")
    assert model_types.member_types(NAME) == (NAME,)
    assert model_types.member_types("cascade") == ("trees", *("network",) * 6, "cascade")
    with pytest.raises(ModelError, match="is truncated"):
        load_member(NAME, b"none")
    with pytest.raises(ModelError, match="'forest', which this Diode does not know"):
        load_member("forest", b"")


def _classes_asked_for(tree: ast.AST) -> set[str]:
    """The names in second arguments of isinstance and in match's class patterns."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            names = ast.walk(node.args[1])
            found |= {getattr(name, "id", getattr(name, "attr", "")) for name in names}
        elif isinstance(node, ast.MatchClass):
            found.add(getattr(node.cls, "id", getattr(node.cls, "attr", "")))
    return found


def test_no_code_asks_which_family_a_model_is_of():
    classes = {
        family.model.partition(":")[2]
        for name, family in model_types.MODEL_TYPES.items()
        if name != NAME
    }
    assert classes == {"Trees", "Network", "DistilledNetwork", "Cascade"}
    for folder in ("diode_engine", "diode_app", "benchmarks"):
        for source in (ROOT / folder).rglob("*.py"):
            asked = _classes_asked_for(ast.parse(source.read_text(encoding="utf-8")))
            assert not asked & classes, source
