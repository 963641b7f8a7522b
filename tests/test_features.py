"""Feature rows: what they say, that they are finite, and that nothing around a row matters."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, MAX_VALUES, Hardware
from diode_engine.core.operand import DType
from diode_engine.core.problem import MAX_DIM, Problem
from diode_engine.core.resources import fits, shared_bytes
from tests.samples import tile

CANDIDATES = (
    tile(16, 16, 16, 1, 2),
    tile(64, 64, 32),
    tile(128, 128, 64, 4, 8),
    tile(256, 256, 256, 5, 8),
    tile(128, 128, 64, 3, 8, "triton::mm_persistent_tma"),
    Candidate.make("aten::mm"),
    Candidate.make("aten::bias_addmm"),
    Candidate.make("decompose_k", k_split=8),
)

PROBLEMS = (
    Problem.make("mm", 1, 1, 1, "float32"),
    Problem.make("mm", 17, 4099, 511, "bfloat16", b_layout="col"),
    Problem.make("addmm", 2048, 4096, 1024, "float16"),
    Problem.make("bmm", 128, 64, 128, "float32", B=96, allow_tf32=True),
    Problem.make("baddbmm", 100, 36, 200, "bfloat16", B=7, a_layout="col"),
)


UNKNOWN = Hardware("cuda", "Unknown", "9.0", 1, 0, 0, 0, 0, 0, 0)
LARGEST = replace(H200, **MAX_VALUES)
NO_GPU = Hardware("cpu", "x", "y", 0, 0, 0, 0, 0, 0, 0)


def rows(
    problem: Problem,
    candidates: tuple[Candidate, ...] = CANDIDATES,
    hardware: Hardware = H200,
) -> np.ndarray:
    n = len(candidates)
    return features.matrix((problem,), candidates, np.zeros(n, np.intp), np.arange(n), hardware)


def value(problem: Problem, candidate: Candidate, name: str) -> float:
    return float(rows(problem, (candidate,))[0, features.NAMES.index(name)])


def test_the_features_are_those_of_their_version():
    """A change of the features, however small, is a change of VERSION: a model is asked with
    what it was trained on. Whoever changes them raises VERSION and this line."""
    p, c = np.divmod(np.arange(len(PROBLEMS) * len(CANDIDATES)), len(CANDIDATES))
    x = features.matrix(PROBLEMS, CANDIDATES, p, c, H200)
    weights = np.linspace(1, 2, x.size).reshape(x.shape)
    total = float(np.sum(x.astype(np.float64) * weights))
    assert (features.VERSION, features.NAMES_HASH) == (2, "b40f270557019d2b")
    assert total == pytest.approx(15682.15539566036, rel=1e-7)


def test_a_row_does_not_depend_on_the_rows_around_it():
    rng = np.random.default_rng(0)
    n = 40_000  # several blocks
    p = rng.integers(0, len(PROBLEMS), n)
    c = rng.integers(0, len(CANDIDATES), n)
    bulk = features.matrix(PROBLEMS, CANDIDATES, p, c, H200)
    for place, problem in enumerate(PROBLEMS):
        mine = np.flatnonzero(p == place)
        alone = features.matrix((problem,), CANDIDATES, np.zeros(len(mine), int), c[mine], H200)
        np.testing.assert_array_equal(alone.view(np.int32), bulk[mine].view(np.int32))
    one = features.matrix(PROBLEMS, CANDIDATES, p[-1:], c[-1:], H200)
    np.testing.assert_array_equal(one.view(np.int32), bulk[-1:].view(np.int32))


def test_loads_of_odd_strides_are_not_pipelined():
    candidate = tile(128, 128, 64, 4)
    aligned = Problem.make("mm", 512, 512, 512, "float16")
    odd = Problem.make("mm", 512, 512, 511, "float16")
    assert value(aligned, candidate, "depth") == 4
    assert value(odd, candidate, "depth") == 1
    # Four bytes are enough for an asynchronous copy: one float32.
    assert value(Problem.make("mm", 512, 512, 511, "float32"), candidate, "depth") == 4


@pytest.mark.parametrize(("k_split", "width"), [(1, 4), (2, 2), (3, 4), (6, 2)])
def test_a_part_of_k_is_as_aligned_as_where_it_starts(k_split, width):
    """30,522 elements a row: parts of 15,261 and 5,087 start at odd elements."""
    problem = Problem.make("mm", 512, 768, 30522, "float16")
    whole = Candidate.make("aten::mm")
    part = whole if k_split == 1 else Candidate.make("decompose_k", k_split=k_split)
    widest = Problem.make("mm", 512, 768, 30528, "float16")
    of_16 = 2 ** value(widest, whole, "log2_loads_a")
    assert 2 ** value(problem, part, "log2_loads_a") == of_16 * 16 / width
    # Rows of b start at multiples of N, whatever part of K they are in.
    assert value(problem, part, "log2_loads_b") == value(widest, whole, "log2_loads_b")


def test_unknown_kwargs_are_ignored_and_missing_ones_filled_in():
    problem = PROBLEMS[2]
    full = tile(64, 64, 32)
    short = Candidate.make("triton::mm", BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    more = tile(64, 64, 32, SOMETHING=5, EVEN_K=1)
    x = rows(problem, (full, short, more))
    np.testing.assert_array_equal(x[0], x[1])
    np.testing.assert_array_equal(x[0], x[2])


@pytest.mark.parametrize(
    ("candidate", "known"),
    [
        (Candidate.make("aten::mm"), True),
        (Candidate.make("triton::bmm", BLOCK_M=16, BLOCK_N=16, BLOCK_K=16), True),
        (Candidate.make("triton::mm", BLOCK_M=16, BLOCK_N=16), False),
        (Candidate.make("triton::mm", BLOCK_M=16.0, BLOCK_N=16, BLOCK_K=16), False),
        (Candidate.make("triton::mm", BLOCK_M=0, BLOCK_N=16, BLOCK_K=16), False),
        (Candidate.make("triton::mm", BLOCK_M=True, BLOCK_N=16, BLOCK_K=16), False),
        (Candidate.make("decompose_k"), False),
        (Candidate.make("cutlass::gemm"), False),
    ],
)
def test_what_is_supported(candidate, known):
    zero = np.zeros(1, np.intp)
    assert features.supported(PROBLEMS, (candidate,), zero, zero).tolist() == [known]


def test_types_without_features_are_not_supported():
    zero = np.zeros(1, np.intp)
    problem = Problem.make("mm", 8, 8, 8, "float64")
    assert not features.supported((problem,), CANDIDATES, zero, zero).any()


@pytest.mark.parametrize(
    ("dtype", "tf32", "candidate", "need"),
    [
        # wgmma: all stages; else all but one, at least one
        ("bfloat16", False, tile(128, 128, 64, 3, 4), 2 * 256 * 64 * 3),
        ("bfloat16", False, tile(32, 128, 64, 3, 4), 2 * 160 * 64 * 2),
        ("bfloat16", False, tile(128, 128, 64, 3, 2), 2 * 256 * 64 * 2),
        ("float16", False, tile(16, 16, 16, 1, 2), 2 * 32 * 16),
        ("float32", True, tile(64, 64, 32, 4, 4), 4 * 128 * 32 * 4),
        ("float32", False, tile(64, 64, 32, 4, 4), 4 * 128 * 32 * 3),
        ("float16", False, Candidate.make("aten::mm"), 0),
    ],
)
def test_shared_memory(dtype, tf32, candidate, need):
    problem = Problem.make("mm", 512, 512, 512, dtype, allow_tf32=tf32)
    assert shared_bytes(problem, (candidate,), H200).tolist() == [need]


def test_what_fits():
    problem = Problem.make("mm", 512, 512, 512, "bfloat16")
    asked = {
        tile(128, 256, 64, 4, 8): True,  # 196,608 bytes
        tile(128, 256, 64, 5, 8): False,  # 245,760 bytes
        tile(32, 256, 64, 5, 8): True,
        tile(256, 256, 16, 1, 2): False,  # the accumulator
        tile(64, 64, 16, 1, 64): False,  # the threads
        Candidate.make("aten::mm"): True,
        Candidate.make("cutlass::gemm"): True,
    }
    assert fits(problem, tuple(asked), H200).tolist() == list(asked.values())


def test_the_space_of_a_problem_says_what_the_matrix_says():
    for problem in PROBLEMS:
        space = features.space(problem, CANDIDATES, H200)
        apart = np.hstack([np.tile(space.problem, (len(CANDIDATES), 1)), space.rest.T])
        np.testing.assert_array_equal(apart.view(np.int32), rows(problem).view(np.int32))


def test_groups_are_as_a_router_makes_them():
    """A group has a block that is not full, and an empty one reads no weights."""
    from diode_engine.core.operators.grouped_mm import ROUTED, group_sizes

    for division in ROUTED:
        for total, groups, align in ((100, 8, 1), (4096, 128, 8), (3, 8, 1), (5, 1, 1)):
            sizes = group_sizes(total, groups, division, align)
            assert (sum(sizes), len(sizes)) == (total, groups)
            assert min(sizes) >= 0
            assert sum(size % align != 0 for size in sizes) <= (total % align != 0)

    def row(tokens: int, **blocks: int) -> dict[str, float]:
        problem = Problem.make("grouped_mm_rows", tokens, 2816, 2048, "bfloat16", B=64)
        config = {"BLOCK_K": 64, "BLOCK_N": 128, "num_stages": 3, "num_warps": 4, **blocks}
        candidate = Candidate.make("triton::grouped_mm", **config)
        x = features.space(problem, [candidate], H200).rows()[0]
        assert np.isfinite(x).all()
        return dict(zip(features.NAMES, x.tolist(), strict=True))

    # 4,096 rows in 64 equal groups fill 64 blocks of 64; a router's groups need more
    assert 64 * 22 < 2 ** row(4096, BLOCK_M=64)["log2_tiles"] < 2 * 64 * 22
    few, many = row(8, BLOCK_M=16), row(4096, BLOCK_M=16)
    assert few["log2_dram_us"] < many["log2_dram_us"] - 2


def test_an_innermost_batch_is_told_from_odd_strides():
    sizes = ("bmm", 250, 250, 250, "bfloat16")
    kinds = [
        Problem.make(*sizes, B=64),
        Problem.make(*sizes, B=64, a_align=1),
        Problem.make(*sizes, B=64, a_batch="inner"),
        Problem.make(*sizes, B=64, a_batch="inner", b_batch="inner"),
    ]
    found = [rows(problem) for problem in kinds]
    assert np.isfinite(found).all()
    for one, other in itertools.combinations(found, 2):
        assert (one != other).any(axis=1).all()


DIMS = st.integers(1, MAX_DIM) | st.integers(1, 5000)
SMALL = st.integers(1, 1 << 20) | st.sampled_from([16, 64, 128])


@settings(deadline=None, max_examples=60)
@example(1, 1, 1, 1, DType.FLOAT16, 1, 1, 1, 1, 1)
@example(MAX_DIM, MAX_DIM, MAX_DIM, MAX_DIM, DType.FLOAT16, 16, 16, 16, 1, 1)
@given(DIMS, DIMS, DIMS, DIMS, st.sampled_from(list(DType)), SMALL, SMALL, SMALL, SMALL, SMALL)
def test_no_value_is_nan_or_infinite(B, M, N, K, dtype, m, n, k, s, w):
    problem = Problem.make("bmm", M, N, K, dtype, B=B)
    pointers, tma = (tile(m, n, k, s, w, f"triton::mm{kind}") for kind in ("", "_persistent_tma"))
    candidates = (pointers, tma, Candidate.make("decompose_k", k_split=s), *CANDIDATES)
    for hardware in (H200, UNKNOWN, LARGEST, NO_GPU):
        assert np.isfinite(rows(problem, candidates, hardware)).all()
