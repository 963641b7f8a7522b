"""How sure a model is: fitted to what was seen to happen, asked and kept without surprises."""

from __future__ import annotations

import numpy as np
import pytest

from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.errors import ModelError, TrainingError
from diode_engine.models.artifact import load_artifact
from diode_engine.models.confidence import INPUTS, MAX_K, Confidence, distance, inputs
from diode_engine.models.fit_confidence import MIN_CASES, Unseen, fit_confidence
from diode_engine.models.neighbours import distances, nearest, places
from diode_engine.models.predictor import Predictor
from tests.models.conftest import network

PROBLEM = Problem.make("mm", 64, 128, 256, "bfloat16")
NO_LIBRARY = np.zeros(40, np.bool_)


def said(rng: np.random.Generator, noise: float) -> Unseen:
    """Four members that know the times of 40 candidates up to so much noise, their own half of
    it and a common half."""
    log_us = rng.normal(3, 0.3, 40)
    members = log_us + noise * (rng.normal(size=(4, 40)) + rng.normal(size=40))
    return Unseen(members, log_us, NO_LIBRARY, away=noise)


@pytest.fixture(scope="module")
def unseen():
    rng = np.random.default_rng(5)
    return [said(rng, noise) for noise in rng.choice([0.002, 0.05, 0.2], 400)]


@pytest.fixture(scope="module")
def fitted(unseen):
    return fit_confidence(unseen, places([PROBLEM]))


def asked(fitted: Confidence, case: Unseen) -> np.ndarray:
    """The probabilities at the distance of the case."""
    x = inputs(case.members, case.library, case.away)
    return 1 / (1 + np.exp(-((x * fitted.weight).sum(axis=1) + fitted.bias)))


def test_probabilities_are_how_often_it_happens(fitted):
    rng = np.random.default_rng(6)
    fresh = [said(rng, noise) for noise in rng.choice([0.002, 0.05, 0.2], 600)]
    for k in (1, 3):
        first = [case.log_us[np.argsort(case.members.mean(axis=0))[:k]] for case in fresh]
        lost = [tried.min() - case.log_us.min() for tried, case in zip(first, fresh, strict=True)]
        reached = np.array(lost) <= np.log(1.05)
        sure = np.array([asked(fitted, case)[k - 1] for case in fresh])
        for part in np.array_split(np.argsort(sure), 4):
            assert sure[part].mean() == pytest.approx(reached[part].mean(), abs=0.1)
        assert sure.std() > 0.1  # and tells the problems apart


def test_more_tries_are_never_less_sure(fitted, unseen):
    for case in unseen[:50]:
        found, _ = fitted.judge(PROBLEM, case.members, case.library)
        assert len(found) == MAX_K
        assert list(found) == sorted(found)
        assert 0 < found[0] <= found[-1] < 1


def test_it_is_surer_where_members_agree_and_problems_are_near(fitted, unseen):
    agree = np.repeat(unseen[0].log_us[None], 4, axis=0)
    differ = agree + np.random.default_rng(1).normal(0, 0.3, agree.shape)
    far = Problem.make("bmm", 1 << 14, 1 << 14, 8, "float32", B=64)

    def first(problem: Problem, members: np.ndarray) -> float:
        return fitted.judge(problem, members, NO_LIBRARY)[0][0]

    assert first(PROBLEM, agree) > first(PROBLEM, differ)
    assert first(PROBLEM, differ) > first(far, differ)


@pytest.mark.parametrize(("members", "candidates"), [(1, 1), (1, 5), (4, 2), (3, 2000)])
def test_any_number_of_members_and_candidates(fitted, members, candidates):
    said = np.random.default_rng(2).normal(size=(members, candidates))
    found, _ = fitted.judge(PROBLEM, said, np.ones(candidates, np.bool_))
    assert np.isfinite(found).all()
    # the columns' order means nothing
    assert found == fitted.judge(PROBLEM, said[:, ::-1], np.ones(candidates, np.bool_))[0]


def test_one_member_can_be_fitted_too(unseen):
    alone = [Unseen(c.members[:1], c.log_us, c.library, c.away) for c in unseen]
    fitted = fit_confidence(alone, places([PROBLEM]))
    assert np.isfinite(fitted.weight).all()
    assert not fitted.weight[:, INPUTS.index("spread")].any()  # there is none to learn from


def test_all_right_is_not_certain():
    rng = np.random.default_rng(0)
    fitted = fit_confidence([said(rng, 0.0) for _ in range(MIN_CASES)], places([PROBLEM]))
    assert 0.9 < asked(fitted, said(rng, 0.0))[0] < 0.995
    with pytest.raises(TrainingError, match="too few"):
        fit_confidence([said(rng, 0.0)] * (MIN_CASES - 1), places([PROBLEM]))


def test_rare_and_wild_problems_do_not_upset_the_fit():
    """One failure in a hundred, and it is far out: Newton's steps alone run away there."""
    rng = np.random.default_rng(3)
    unseen = [said(rng, 0.001) for _ in range(400)]
    for _ in range(4):
        wild = said(rng, 0.0)
        unseen.append(Unseen(wild.members[:, ::-1] * 40, wild.log_us, wild.library, 1e6))
    fitted = fit_confidence(unseen, places([PROBLEM]))
    sure = [asked(fitted, case) for case in unseen]
    assert np.isfinite(sure).all()
    assert np.mean(sure[:400]) == pytest.approx(1, abs=0.03)
    assert np.mean([s[0] for s in sure[400:]]) < 0.7


def test_the_nearest_are_found_among_any_number_of_problems():
    rng = np.random.default_rng(3)
    sizes = (2 ** rng.uniform(0, 14, (2000, 3))).astype(int).tolist()
    seen = places([Problem.make("mm", *size, "bfloat16") for size in sizes])
    for count in (0, 1, 5, 63, 64, 319, 320, 500, 2000):
        wanted = np.sort(distances(PROBLEM, seen[:, :count]))[:5]
        found, away = nearest(PROBLEM, seen[:, :count], 5)
        assert np.array_equal(away, wanted)
        assert np.array_equal(distances(PROBLEM, seen)[found], wanted)


def test_distances_are_in_factors_of_two():
    twice = Problem.make("mm", 128, 128, 256, "bfloat16")
    both = Problem.make("mm", 128, 64, 256, "bfloat16")
    np.testing.assert_allclose(
        distances(PROBLEM, places([PROBLEM, twice, both])), [0, 1, np.sqrt(2)], rtol=1e-6
    )
    assert distance(PROBLEM, places([twice, twice])) == 1
    assert distance(PROBLEM, places([twice] * 3 + [PROBLEM] * 5)) == 0
    assert distance(PROBLEM, places([twice] * 9 + [PROBLEM])) == pytest.approx(4 / 5)
    assert distances(PROBLEM, places([])).shape == (0,)


def test_the_smallest_k_that_is_sure_enough():
    six = [Candidate.make("aten::mm")] * 6
    ranking = Prediction(PROBLEM, six, np.ones(6), (0.5, 0.8, 0.8, 0.95))
    assert ranking.confidence == 0.5
    assert [ranking.count_to_reach(p) for p in (0.1, 0.6, 0.8, 0.9, 0.99)] == [1, 2, 2, 4, 4]
    assert (
        Prediction(PROBLEM, six[:2], np.ones(2), (0.5, 0.6, 0.7)).count_to_reach(0.9) == 2
    )  # there are no more
    unsure = Prediction(PROBLEM, six, np.ones(6))
    assert (unsure.confidence, unsure.count_to_reach(0.9)) == (None, None)


def test_a_model_keeps_it(save, fitted, candidates, tmp_path):
    members = (network(1), network(2), network(3))
    plain = save(tmp_path / "plain", members)
    sure = save(tmp_path / "sure", members, confidence=fitted)
    assert sure.manifest.confidence["file"] == "confidence.safetensors"
    assert sure.manifest.identity != plain.manifest.identity
    problem = Problem.make("mm", 100, 200, 300, "float16")
    offered = (*candidates, Candidate.make("unknown::mm"))
    predictor = Predictor(load_artifact(tmp_path / "sure"))
    ranking = predictor.predict(problem, offered)
    predicted = predictor.predict_us(problem, offered)
    np.testing.assert_array_equal(ranking.predicted_us, predicted)
    assert ranking.order.tolist() == np.argsort(predicted, kind="stable").tolist()[:-1]
    # The logarithm of a prediction is what the members gave, to the last bit or nearly.
    assert ranking.reaches == pytest.approx(
        fitted.judge(
            problem,
            np.log(predictor.predict_members_us(problem, candidates)),
            np.array([c.is_extern for c in candidates]),
        )[0],
        rel=1e-9,
    )
    assert Predictor(plain).predict(problem, offered).reaches is None
    foreign = Problem.make("mm", 100, 200, 300, "int8", out_dtype="int32")
    nothing = predictor.predict(foreign, offered)
    assert (len(nothing.order), nothing.reaches) == (0, None)
    (tmp_path / "sure" / "confidence.safetensors").write_bytes(fitted.to_bytes()[:-4])
    with pytest.raises(ModelError, match=r"confidence.safetensors has \d+ bytes"):
        load_artifact(tmp_path / "sure")


def test_bytes_that_are_no_confidence_are_refused(fitted):
    again = Confidence.from_bytes(fitted.to_bytes())
    assert again.to_bytes() == fitted.to_bytes()
    for data in (b"", fitted.to_bytes()[:-1], network().to_bytes()):
        with pytest.raises(ModelError, match="confidence's file"):
            Confidence.from_bytes(data)
    endless = Confidence(fitted.weight, fitted.bias + np.float32(np.inf), fitted.places)
    with pytest.raises(ModelError, match="not finite"):
        Confidence.from_bytes(endless.to_bytes())
