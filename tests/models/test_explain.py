"""What each group of features adds to the difference between two candidates."""

import math

import numpy as np
import pytest

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.models.artifact import Artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.explain import GROUPS, explain, rival
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import TimingModel
from tests.samples import tile

PROBLEM = Problem.make("mm", 512, 384, 2048, "bfloat16")
WIDE, SMALL = tile(128, 128, 64, 4, 8), tile(16, 32, 32, 2, 4)


class Rule(TimingModel):
    """A model that is a function of columns."""

    family = "rule"

    def __init__(self, rule):
        self.rule = rule

    def predict(self, x):
        return self.rule(lambda name: x[:, features.NAMES.index(name)]).astype(np.float32)


@pytest.fixture
def predictor(table):
    manifest = Manifest(
        name="rule", family="rule", hardware=H200, coverage=Coverage.make(table), data=Data()
    )
    return lambda rule: Predictor(Artifact(manifest, (Rule(rule),)))


def test_every_column_that_candidates_differ_in_is_in_one_group():
    named = [name for names in GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) == set(features.NAMES[features.PROBLEM_COLUMN_COUNT :])


def test_the_factors_multiply_to_the_ratio_of_the_times(predictor):
    def rule(x):
        return 0.1 * x("stages") * x("log2_warps") - 0.3 * np.maximum(x("log2_tile"), x("fill"))

    found = explain(predictor(rule), PROBLEM, WIDE, SMALL)
    assert math.prod(found.factors.values()) == pytest.approx(
        found.candidate_us / found.baseline_us, rel=1e-5
    )


def test_a_group_that_the_model_does_not_look_at_has_no_part(predictor):
    found = explain(predictor(lambda x: x("stages") / 2), PROBLEM, WIDE, SMALL)
    assert found.factors["pipeline"] == pytest.approx(math.e)  # (4 - 2) / 2
    others = [factor for group, factor in found.factors.items() if group != "pipeline"]
    assert others == pytest.approx([1] * len(others))


def test_groups_that_only_count_together_share_it_equally(predictor):
    found = explain(predictor(lambda x: x("stages") * x("log2_warps")), PROBLEM, WIDE, SMALL)
    # 4·3 - 2·2 = 8; by the two orders (4-2)·2 + 4·(3-2), and 2·(3-2) + (4-2)·3.
    assert math.log(found.factors["pipeline"]) == pytest.approx((4 + 6) / 2)
    assert math.log(found.factors["warps and memory on chip"]) == pytest.approx((4 + 2) / 2)


def test_nothing_is_said_of_what_the_model_does_not_know(predictor):
    rule = predictor(lambda x: x("stages"))
    assert explain(rule, PROBLEM, WIDE, Candidate.make("cutlass::mm")) is None


def test_the_first_is_explained_beside_the_best_of_the_other_kind():
    aten = Candidate.make("aten::mm")
    assert rival([WIDE, SMALL, aten]) == 2
    assert rival([aten, WIDE, SMALL]) == 1
    assert rival([WIDE, SMALL]) == 1
    assert rival([WIDE]) is None
    assert rival([]) is None
