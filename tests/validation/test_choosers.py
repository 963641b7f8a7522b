from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diode_engine.choosing.prediction import Prediction
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.validation import choosers, nv_heuristics
from diode_engine.validation.pool import CandidatePool
from tests.samples import tile

ATEN = Candidate("aten::mm")


def chosen(pool: CandidatePool, chooser: choosers.ScoredChooser) -> list[Candidate]:
    """What it takes, the best first."""
    order = np.argsort(chooser.score, kind="stable")
    return [
        pool.table.candidates[pool.table.candidate[i]]
        for i in order
        if not np.isnan(chooser.score[i])
    ]


def test_aten_is_the_best_extern_kernel(pool):
    problem = Problem.make("addmm", 64, 64, 64, "float16")
    one, other = Candidate("aten::addmm"), Candidate("aten::bias_addmm")
    made = pool((problem, one, 3.0), (problem, other, 2.0), (problem, Candidate("triton::mm"), 1.0))
    assert chosen(made, choosers.aten(made)) == [other, one]


class Ranks:
    """Ranks these candidates alone."""

    def __init__(self, *ranked: Candidate) -> None:
        self.ranked = ranked

    def predict(self, problem: Problem, candidates: Sequence[Candidate]) -> Prediction:
        us = [1.0 if each in self.ranked else np.nan for each in candidates]
        return Prediction(problem, candidates, np.array(us), (0.5,))


def test_a_model_never_takes_what_cannot_fit_or_what_it_does_not_rank(pool, problem):
    huge, small, left = tile(256, 256, 128, 5, 8), tile(64, 64, 32, 3, 4), tile(32, 32, 32, 3, 4)
    made = pool(
        (problem, huge, Failure.OUT_OF_RESOURCES), (problem, small, 9.0), (problem, ATEN, 8.0),
        (problem, left, 7.0),
    )  # fmt: skip
    predicted = np.array([[huge, left, small, ATEN].index(c) + 1.0 for c in made.table.candidates])
    judged: Any = Ranks(huge, small, ATEN)
    found, reaches = choosers.model(made, judged, predicted[made.table.candidate], "m")
    assert chosen(made, found) == [small, ATEN]
    assert reaches == [(0.5,)]


def test_default_is_the_best_of_its_space_only(pool, problem):
    inside = tile(128, 128, 64, 3, 4)
    without_group = Candidate.make(
        "triton::mm", BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_stages=2, num_warps=4
    )
    outside = tile(128, 128, 64, 4, 4)
    another_group = tile(128, 128, 64, 3, 4, GROUP_M=4)
    tma = Candidate("triton::mm_persistent_tma", inside.kwargs)
    made = pool(
        (problem, ATEN, 5.0), (problem, inside, 4.0), (problem, without_group, 3.0),
        *((problem, c, 1.0) for c in (outside, another_group, tma)),
    )  # fmt: skip
    default = choosers.max_autotune_default(made)
    assert chosen(made, default) == [without_group, inside, ATEN]
    assert default.timed == 3


def test_default_is_that_of_the_timings_torch(pool, problem):
    later, always = tile(128, 256, 64, 4, 8), tile(128, 128, 64, 3, 4)
    rows = ((problem, ATEN, 5.0), (problem, later, 1.0), (problem, always, 2.0))
    for torch, best in (("2.11.0+cu130", always), ("2.13.0", later)):
        made = pool(*rows, environment=Environment(H200, "", torch, ""))
        assert chosen(made, choosers.max_autotune_default(made))[0] == best


def test_default_has_the_library_kernels_of_that_torch(pool):
    problem = Problem.make("addmm", 64, 64, 64, "float16", bias="vector")
    plain, biased = Candidate("aten::addmm"), Candidate("aten::bias_addmm")
    rows = ((problem, plain, 3.0), (problem, biased, 2.0))
    for torch, offered in (("2.11.0", [biased, plain]), ("2.13.0", [biased])):
        made = pool(*rows, environment=Environment(H200, "", torch, ""))
        assert chosen(made, choosers.max_autotune_default(made)) == offered
        # without max-autotune there is no such difference: it takes either
        assert chosen(made, choosers.aten(made)) == [biased, plain]


def test_no_triton_kernel_is_atens(pool, problem):
    split = Candidate.make("decompose_k", k_split=2)
    made = pool((problem, tile(64, 64, 32, 2, 4), 1.0), (problem, split, 2.0))
    assert chosen(made, choosers.aten(made)) == []


def test_the_nearest_problem_lends_its_fastest(table, pool, problem):
    a, b, c = (tile(64, 64, 32, stages, 4) for stages in (2, 3, 4))
    near = Problem.make("mm", 1024, 1024, 1536, "bfloat16")
    far = Problem.make("mm", 16, 1024, 1024, "bfloat16")
    seen = table(
        (near, a, 5.0), (near, b, 9.0), (near, b, 4.0), (near, c, Failure.CRASH),
        (near, tile(16, 16, 16, 2, 1), 1.0),
        (far, a, 1.0), (far, b, 2.0),
    )  # fmt: skip
    made = pool((problem, ATEN, 1.0), (problem, a, 2.0), (problem, b, 3.0), (problem, c, 1.0))
    found = choosers.nearest_problem(made, seen)
    assert found is not None
    assert chosen(made, found) == [b, a]
    elsewhere = Environment(replace(H200, name="Another GPU"), "", "", "")
    assert choosers.nearest_problem(made, table((near, a, 1.0), environment=elsewhere)) is None


def test_roofline_and_median_choose_without_a_model(pool, problem):
    good, poor = tile(128, 128, 64, 3, 4), tile(16, 16, 16, 1, 2)
    unknown = Candidate.make("somebody::mm", anything=1)
    made = pool((problem, good, 1.0), (problem, poor, 30.0), (problem, unknown, 5.0))
    assert chosen(made, choosers.roofline(made)) == [good, poor]
    assert chosen(made, choosers.median_candidate(made))[0] == unknown


class TestNvMatmulHeuristics:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("nvMatmulHeuristics")

    @pytest.mark.parametrize(
        ("a", "b", "expected"),
        [("row", "row", "NN"), ("row", "col", "NT"), ("col", "row", "TN"), ("col", "col", "TT")],
    )
    def test_is_asked_about_the_layouts(self, a, b, expected, monkeypatch):
        """In its words a row-major operand is not transposed."""
        asked: list[str] = []
        real = nv_heuristics._interface("H200_SXM")

        class Recording:
            def makeNvMatmulHeuristicsProblem(
                self, m: int, n: int, k: int, layout: Any, **more: int
            ):
                asked.append(layout.name)
                return real.makeNvMatmulHeuristicsProblem(m, n, k, layout, **more)

            def get(self, *rest: Any, **more: Any) -> Any:
                return real.get(*rest, **more)

        monkeypatch.setattr(nv_heuristics, "_interface", lambda gpu: Recording())
        problem = Problem.make("mm", 512, 1024, 2048, "float16", a_layout=a, b_layout=b)
        assert len(nv_heuristics.suggestions(problem, H200))
        assert asked == [f"{expected}_ROW_MAJOR"]

    def test_the_nearest_measured_candidate_stands_for_a_suggestion(self, problem, monkeypatch):
        asked = np.array(
            [[128, 128, 64, 8, 4], [128, 128, 64, 7, 4], [64, 64, 32, 3, 4]], np.float32
        )
        monkeypatch.setattr(nv_heuristics, "suggestions", lambda *_: asked)
        candidates = (
            ATEN,
            tile(128, 128, 64, 5, 4),
            tile(128, 128, 64, 4, 4),
            tile(64, 64, 64, 3, 4),
            tile(64, 64, 32, 3, 4),
        )
        usable = np.array([True, True, True, True, False])
        rank = nv_heuristics.ranking(problem, candidates, usable, H200)
        np.testing.assert_array_equal(rank, [np.nan, 0, np.nan, 1, np.nan])

    def test_ranks_a_pool(self, pool, problem):
        good, poor = tile(128, 128, 64, 4, 4), tile(16, 16, 16, 1, 2)
        made = pool((problem, poor, 90.0), (problem, good, 9.0), (problem, ATEN, 5.0))
        chooser, notes = choosers.nv_matmul_heuristics(made)
        assert notes == ()
        assert chooser is not None
        assert chosen(made, chooser)[0] == good


def test_heuristics_of_another_device_or_not_installed(pool, problem, monkeypatch):
    elsewhere = Environment(replace(H200, name="Another GPU"), "", "", "")
    rows = ((problem, ATEN, 1.0), (problem, Candidate("decompose_k", (("k_split", 2),)), 2.0))
    chooser, notes = choosers.nv_matmul_heuristics(pool(*rows, environment=elsewhere))
    assert chooser is None
    assert notes == ("nvMatmulHeuristics does not know Another GPU.",)

    def missing(name: str, *rest: Any) -> Any:
        if name == "nvMatmulHeuristics":
            raise ModuleNotFoundError(name=name)
        return real(name, *rest)

    real = builtins.__import__
    nv_heuristics._interface.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)
    chooser, notes = choosers.nv_matmul_heuristics(pool(*rows))
    assert chooser is None
    assert "pip install" in notes[0]
