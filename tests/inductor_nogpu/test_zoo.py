"""The zoo's models lowered in all of Diode's ways: a quick part of what `make zoo` does."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import zoo
import zoo_lowering
import zoo_ways
from zoo_lowering import kernels
from zoo_models import ZOO, missing
from zoo_report import differences
from zoo_ways import Way, diode, stock

from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing import chosen_kernels
from diode_engine.inductor.hook import choices
from diode_engine.problems.sources import read_shapeset
from tests.inductor_nogpu.conftest import FixedPredictor

WAYS = ("plain", "import", "fast", "install", "threshold", "mode")
QUICK = (
    "recommender-towers", "recommender-towers-dynamic", "odd-mlp-training",
    "plain-attention-float16", "capacity-experts", "two-tower", "mmoe-tf32",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _precision():
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


def lowered(name: str, ways: tuple[str, ...] = WAYS) -> dict[str, dict[str, Any]]:
    """The rows by way."""
    if reason := missing(ZOO[name].source):
        pytest.skip(reason)
    rows: list[dict[str, Any]] = []
    zoo_lowering.lower(ZOO[name], ways, rows.append)
    return {row["way"]: row for row in rows}


@pytest.mark.parametrize("name", [*QUICK, "t5-large-encoder"])
def test_a_model_is_lowered_in_every_way(name):
    rows = lowered(name)
    assert {way: zoo.wrong(row) for way, row in rows.items()} == {way: [] for way in WAYS}
    for way in WAYS[1:]:
        assert rows[way]["products"] > 0, way
        assert rows[way]["stats"]["fallbacks"] == 0, way
    assert rows["plain"]["products"] == 0
    problems = {Problem.from_dict(fields) for fields in rows["plain"]["problems"]}
    assert problems
    if name == "odd-mlp-training":  # the gradients' products are among them
        assert any(p.a.layout == "col" for p in problems)


BLOCKS = {
    "deepseek-v3-block": {"grouped_mm_rows": 2, "mm": 8},
    "qwen3-30b-a3b-block-training": {"grouped_mm_rows": 4, "grouped_mm_depth": 2, "mm": 9},
    "llama-3-8b-float8-rows-dynamic": {"scaled_mm": 4},
    "llama-3-8b-float8-training": {"scaled_mm": 12},
    "llama-3-8b-int8": {"int_mm": 4},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_8_bits_and_of_experts_are_chosen_for_where_the_model_knows_them(name):
    knows = diode(predictor=FixedPredictor(), top_k_configs=1)
    ignores_them = FixedPredictor()
    ignores_them.ops = frozenset({"mm", "addmm", "bmm", "baddbmm"})
    ignores = diode(predictor=ignores_them, top_k_configs=1)
    ways = {"import": Way(zoo_ways._TUNED, knows), "fast": Way(zoo_ways._TUNED, ignores)}
    with mock.patch.dict(zoo_ways.WAYS, ways):
        rows = lowered(name, ("plain", "import", "fast"))
    assert {way: zoo.wrong(row) for way, row in rows.items()} == {way: [] for way in rows}
    problems = [Problem.from_dict(fields) for fields in rows["plain"]["problems"]]
    # torch 2.15 asks for some of the mm and the sum behind it as one addmm
    assert {str(problem.op) for problem in problems} - {"addmm"} == set(BLOCKS[name])
    assert (rows["plain"]["left_out"], rows["plain"]["products"]) == ([], 0)
    assert rows["import"]["products"] == sum(BLOCKS[name].values())
    assert rows["import"]["stats"]["fallbacks"] == rows["fast"]["stats"]["fallbacks"] == 0
    assert rows["fast"]["products"] == BLOCKS[name].get("mm", 0)


def test_what_is_raised_is_seen():
    def add(_):
        raise RuntimeError("no choice is good enough")

    # where it is added, and where it is removed
    with (
        mock.patch.object(choices, "final_choice", add),
        mock.patch.object(chosen_kernels, "final_choice", add),
    ):
        rows = lowered("two-tower", ("plain", "install"))
    assert not zoo.wrong(rows["plain"])
    assert any("no choice is good enough" in said for said in zoo.wrong(rows["install"]))


def test_a_warning_of_its_own_is_wrong():
    def noisy(*_):
        warnings.warn("the model is on fire", stacklevel=1)
        logging.getLogger("diode_engine.inductor").warning("nor is it out after 3 s")
        return []

    ways = {"noisy": Way({}, stock), **zoo_ways.WAYS}
    with (
        mock.patch.dict(zoo_ways.WAYS, ways),
        mock.patch.object(zoo_lowering, "lower_graphs", side_effect=noisy),
    ):
        rows = lowered("two-tower", ("noisy", "import"))
    found = zoo.wrong(rows["import"])
    assert found == [
        "a new warning: UserWarning: the model is on fire",
        "a new warning: diode_engine.inductor: nor is it out after # s",
    ]


def test_a_kernel_that_does_not_fit_is_wrong():
    def none(problem, candidates, hardware):
        return np.zeros(len(candidates), bool)

    with mock.patch.object(zoo_lowering, "fits", none):
        rows = lowered("two-tower", ("plain", "import"))
    assert zoo.wrong(rows["import"])
    assert [t for t in zoo.wrong(rows["import"]) if not t.startswith("does not fit: ")] == []


def test_the_products_of_the_zoo_are_a_shapeset(tmp_path, monkeypatch):
    rows = lowered("recommender-towers", ("plain",))
    file, products = tmp_path / "rows.jsonl", tmp_path / "products.json"
    kept = zoo.Rows(file)
    kept.add(rows["plain"])
    command = ["zoo.py", "--lower", "--models", "^recommender-towers$", "--ways", "plain",
               "--json", str(file), "--products", str(products)]  # fmt: skip
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as end:
        zoo.main()  # all is in the file, so that nothing is lowered
    assert end.value.code == 0
    assert rows["plain"]["torch"] == str(torch.__version__)
    expected = [Problem.from_dict(p) for p in rows["plain"]["problems"]]
    assert read_shapeset(products).problems(0) == expected
    assert (6144, 1024, 479) in {(p.M, p.N, p.K) for p in expected}


PROGRAM = """
def call(self, args):
        buf0 = empty_strided_cuda((2, 3), (3, 1), torch.float16)
        buf1 = empty_strided_cuda((s0, 3), (3, 1), torch.float16)
        triton_poi_fused_clone_relu_0.run(arg0_1, buf0, 6, stream=stream0)
        triton_tem_fused_clone_mm_1.run(arg0_1, buf0, buf1, 6, 1, 1, stream=stream0)
        extern_kernels.mm(buf0, arg1_1, out=buf1)
        buf2 = torch.ops.aten.sort.stable(buf1)
"""


def test_the_kernels_of_a_program_are_counted():
    counted = {"poi": 1, "tem": 1, "mm": 1, "clone": 1, "aten.sort": 1, "bytes": 12}
    assert kernels([PROGRAM]) == counted
    assert kernels([PROGRAM, PROGRAM]) == {name: 2 * count for name, count in counted.items()}


def row(way: str, **more: Any) -> dict[str, Any]:
    return {
        "way": way, "error": "", "warnings": [], "graphs": 1, "products": 2,
        "stats": {"fallbacks": 0}, "kernels": {"poi": 3, "mm": 2}, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, []),
        ({"kernels": {"poi": 2, "mm": 1, "tem": 1}}, []),
        ({"error": "no"}, ["import: no"]),
        ({"warnings": ["fire"]}, ["import: a new warning: fire"]),
        ({"products": 1}, ["import: 1 of 2 products not asked for"]),
        ({"products": 1, "stats": {"fallbacks": 0, "activations_moved": 1}}, []),
        ({"stats": {"fallbacks": 0, "passed_int_mm": 1}}, ["import: passed_int_mm 1: []"]),
        ({"kernels": {"poi": 4, "mm": 2}}, ["import: 4 poi, stock has 3"]),
        ({"kernels": {"poi": 4}, "stats": {"fallbacks": 0, "padding_decided": 1}}, []),
    ],
)
def test_what_stock_does_not_do_is_told(more, said):
    rows = {"plain": row("plain"), "import": row("import", **more)}
    assert list(differences(rows)) == said
