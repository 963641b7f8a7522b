"""Which order of summation is fixed for a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from diode_engine.choosing import proofs
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.invariant import ROWS, InvariantChooser, layer_of, space_for
from diode_engine.choosing.outcomes import LeftToStock
from diode_engine.choosing.proofs import Proof
from diode_engine.choosing.summation import Instruction, SummationOrder, order_of
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem

LAYER = Problem.make("mm", 64, 1024, 4096, "float16", b_layout="col")
WGMMA, MMA = (
    SummationOrder(instruction, "float16", "float32", 16)
    for instruction in (Instruction.WGMMA, Instruction.MMA)
)


@pytest.fixture(autouse=True)
def _proven(monkeypatch):
    versions = ("2.11", "2.11"), ("3.6", "3.6")
    rows = tuple(Proof((order,), "9.0", *versions, 1, 1, "pretended") for order in (WGMMA, MMA))
    monkeypatch.setattr(proofs, "PROOFS", rows)


class Times:
    """Predicts `mma` of M microseconds for kernels with mma.sync, and 1 for the others."""

    identity = "times"

    def __init__(self, mma: Callable[[int], float]) -> None:
        self.mma = mma
        self.asked: list[tuple[int, float]] = []

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> np.ndarray:
        tiles = [int(c.config.get("BLOCK_M") or 0) for c in candidates]
        self.asked += [(problem.M, tile) for tile in set(tiles)]
        orders = [order_of(problem, c, H200) for c in candidates]
        return np.array([self.mma(problem.M) if order == MMA else 1.0 for order in orders])


def choose(mma: Callable[[int], float], *, torch: str = "2.11.0") -> tuple[SummationOrder, Times]:
    times = Times(mma)
    (order,) = InvariantChooser(Chooser(times, H200), torch, "3.6.0").orders_for(LAYER)
    return order, times


def test_the_order_with_the_least_time_over_all_batches_is_fixed(monkeypatch):
    """Twice as fast for a batch counts as much as half as fast for another."""
    monkeypatch.setattr("diode_engine.choosing.invariant.ROWS", (16, 64, 512, 8192))
    assert choose(lambda m: 0.4 if m < 512 else 2.0)[0] == MMA
    assert choose(lambda m: 0.6 if m < 512 else 2.0)[0] == WGMMA
    assert choose(lambda m: np.nan if m == 8192 else 0.1)[0] == WGMMA  # none for all batches


def test_a_tile_higher_than_the_batch_takes_as_long_as_a_full_one():
    _, times = choose(lambda m: 1.0)
    assert {tile for m, tile in times.asked if m == 1} == {16}
    assert {m for m, tile in times.asked if tile == 64} == {m for m in ROWS if m >= 64}


def test_a_tile_that_loads_a_row_many_times_takes_longer(monkeypatch):
    """Tiles of wgmma have 64 rows, of mma.sync also 16."""
    for rows, order in ((1, MMA), (2, WGMMA), (8, WGMMA)):
        monkeypatch.setattr("diode_engine.choosing.invariant.ROWS", (rows,))
        assert choose(lambda m: 2.5)[0] == order


def test_batches_of_one_layer_are_one_layer():
    def same(*problems: Problem) -> None:
        assert len(set(map(layer_of, problems))) == 1

    same(*(Problem.make("mm", m, 1024, 4096, "float16", b_layout="col") for m in (1, 7, 64)))
    same(LAYER, replace(LAYER, M=1), Problem.make("mm", 8, 1024, 4096, "fp16", a_layout="col",
         b_layout="col"))  # fmt: skip
    addmm = Problem.make("addmm", 8, 1024, 4096, "float16", bias="matrix")
    same(addmm, replace(addmm, M=1))  # whose bias is a vector
    bmm = Problem.make("bmm", 8, 128, 64, "float16", B=8, b_batch="inner")
    same(bmm, replace(bmm, B=1), replace(bmm, B=32, M=1))
    assert layer_of(LAYER) != layer_of(replace(LAYER, N=512))
    assert layer_of(LAYER) != layer_of(Problem.make("mm", 64, 1024, 4096, "float16"))


def test_every_batch_has_kernels_of_both_orders():
    for m in (1, 17, 64, 8192):
        problem = replace(LAYER, M=m)
        found = {order_of(problem, c, H200) for c in space_for(problem)}
        assert found == {WGMMA, MMA}


def test_an_order_is_not_fixed_where_it_is_not_proven():
    with pytest.raises(LeftToStock, match=r"is proven on NVIDIA H200 with torch 2\.12\.0"):
        choose(lambda m: 1.0, torch="2.12.0")
