"""Where problems come from: what each source draws, files, and which model a problem is of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.named_layers import EXPERTS, TRANSFORMERS, models_of
from diode_engine.core.operand import Bias, DType, Layout
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.errors import CollectionError, DatasetError
from diode_engine.problems.harvested import families_of, harvest, is_of_held_out_family
from diode_engine.problems.sources import (
    SOURCES,
    Wanted,
    mixed,
    moderate,
    parse_source,
    problems_in,
    read_shapeset,
    write_shapeset,
)
from diode_engine.problems.sources.eight_bit import EightBit
from diode_engine.problems.sources.experts import GroupedExperts
from diode_engine.problems.splits import FAMILIES, split, split_named
from diode_engine.store import write_dataset
from tests.samples import shared_class, table_of, tile


@pytest.fixture
def timings():
    """One candidate on layers of named models and on other problems."""
    return timings_of([*drawn("transformers", 100), *drawn("odd", 100)])


def timings_of(problems: Iterable[Problem]) -> TimingTable:
    several = tuple(dict.fromkeys(problems))
    return table_of(several, [Candidate.make("aten::mm")], np.ones(len(several)))


def drawn(source: str, count: int = 300, seed: int = 0) -> list[Problem]:
    return list(islice(parse_source(source).problems(seed), count))


def test_inner_batches_are_drawn_by_their_source_only():
    assert all(problem.inner_batches or problem.M == 1 for problem in drawn("inner-batch"))
    assert {p.inner_batches for p in drawn("inner-batch")} >= {("a",), ("b",), ("a", "b")}
    for name in set(SOURCES) - {"inner-batch"}:
        assert not any(problem.inner_batches for problem in drawn(name))


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_draws_the_same_by_the_same_seed_only(name):
    assert drawn(name) == drawn(name)
    assert drawn(name) != drawn(name, seed=1)


def test_the_harvest_ends_and_has_each_problem_once():
    problems = list(parse_source("harvest").problems(0))
    assert len(set(problems)) == len(problems) == len(harvest().found)


def test_the_harvest_gives_what_more_programs_have_sooner():
    found = harvest().found
    problems = list(parse_source("harvest:side=learned").problems(0))
    first, last = problems[:200], problems[-200:]
    assert np.mean([found[p].programs for p in first]) > np.mean([found[p].programs for p in last])


def test_the_sides_of_the_harvest_share_no_sizes():
    learned = list(parse_source("harvest:side=learned").problems(0))
    held = list(parse_source("harvest:side=held-out").problems(0))
    sizes = [{(p.B, p.M, p.N, p.K) for p in side} for side in (learned, held)]
    assert sizes[0].isdisjoint(sizes[1])
    assert len(learned) + len(held) == len(harvest().found)
    assert not any(map(is_of_held_out_family, learned))
    assert all(map(is_of_held_out_family, held))


def test_the_harvest_by_family_and_kind():
    for p in islice(parse_source("harvest:families=llama/bert").problems(0), 200):
        assert families_of(p) & {"llama", "bert"}
    for p in islice(parse_source("harvest:kinds=encoder").problems(0), 200):
        assert "encoder" in {harvest().families[name].kind for name in families_of(p)}


def test_a_table_is_parted_by_families():
    held = list(islice(parse_source("harvest:side=held-out").problems(0), 50))
    # the same sizes in a type that nothing was harvested in
    same_sizes = [
        Problem.from_dict({**p.to_dict(), "dtype": "float64", "out_dtype": "float64"}) for p in held
    ]
    learned = list(islice(parse_source("harvest:side=learned").problems(0), 50))
    table = timings_of([*held, *same_sizes, *learned, *drawn("odd", 50)])
    kept, judged = split(table, (FAMILIES,))
    assert set(judged.problems) >= {*held, *same_sizes}
    assert set(kept.problems) >= {*learned}
    assert len(kept) + len(judged) == len(table)


def test_the_usual_mix_is_skinny_for_a_third_and_has_all_ops_and_types():
    problems = mixed(2000, 0)
    assert len(set(problems)) == 2000
    assert all(map(moderate, problems))
    assert np.mean([min(p.M, p.N) <= 64 for p in problems]) >= 0.3
    assert {str(p.op) for p in problems} == {"mm", "addmm", "bmm", "baddbmm"}
    assert {(p.dtype, p.allow_tf32) for p in problems} >= {
        (DType.BFLOAT16, False), (DType.FLOAT16, False), (DType.FLOAT32, True),
        (DType.FLOAT32, False),
    }  # fmt: skip


def test_problems_by_widths_share_kernels():
    def classes(name: str) -> int:
        problems = [p for p in drawn(name, 1000) if not p.op.batched]
        return len({shared_class(p, tile(64, 64, 64)) for p in problems})

    assert classes("widths") < classes("log-normal") / 2


def test_skinny_problems_are_skinny_and_odd_ones_have_odd_strides():
    assert all(min(p.M, p.N) <= 64 for p in drawn("skinny"))
    odd = drawn("odd", 1000)
    assert np.mean([min(p.a.align, p.b.align) == 1 for p in odd]) > 0.5
    assert {p.a.align for p in odd} >= {1, 2, 4, 8}
    # padded: the operand lies better than its sizes alone would let it
    assert any(p.a.align > (p.K if p.a.layout is Layout.ROW else p.M) % 16 == 1 for p in odd)


def test_parameters_are_heeded():
    small = drawn("log-normal:median=64,sigma=0.5,largest=200")
    assert max(max(p.N, p.K) for p in small) < 512 < max(p.K for p in drawn("log-normal"))
    llama = drawn("transformers:models=llama-3-8b/qwen2-7b")
    assert all(models_of(p) & {"llama-3-8b", "qwen2-7b"} for p in llama)


def test_a_grid_is_finite_and_whole():
    problems = mixed(1000, 3, ("grid:m=8/16,n=64,k=128/256",))
    assert len(problems) == 2 * 1 * 2 * 4 * 4
    assert {(p.M, p.N, p.K) for p in problems} == {
        (m, 64, k) for m in (8, 16) for k in (128, 256)
    }  # fmt: skip
    powers = mixed(10_000, 0, ("powers:least=32,most=64",))
    assert {s for p in powers for s in (p.M, p.N, p.K)} == {32, 64}


def test_a_mix_goes_on_where_one_source_ends():
    problems = mixed(100, 0, ("grid:m=3,n=64,k=64", "skinny"))
    assert len(problems) == 100
    assert sum((p.M, p.N, p.K) == (3, 64, 64) for p in problems) == 16


def test_only_wanted_problems_are_drawn():
    wanted = Wanted(("bmm", "addmm"), ("tf32",), ("row/col",))
    problems = mixed(40, 0, wanted=wanted)
    assert len(problems) == 40
    assert {str(p.op) for p in problems} <= {"bmm", "addmm"}
    assert {(p.dtype, p.allow_tf32) for p in problems} == {(DType.FLOAT32, True)}
    assert {(p.a.layout, p.b.layout) for p in problems} == {(Layout.ROW, Layout.COL)}
    fp32 = mixed(20, 0, ("grid",), Wanted(types=("fp32",)))
    assert not any(p.allow_tf32 for p in fp32)


def test_a_source_without_wanted_problems_comes_to_its_end():
    assert mixed(5, 0, ("attention",), Wanted(ops=("addmm",))) == []


@pytest.mark.parametrize("given", [{"ops": ("conv",)}, {"types": ("fp8",)}, {"layouts": ("row",)}])
def test_what_cannot_be_wanted_is_refused(given):
    with pytest.raises(CollectionError, match=r"There is no .*; there are"):
        Wanted(**given)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sizes", "no source 'sizes'"),
        ("zoo:seed=1", "no parameter 'seed'"),
        ("log-normal:sigma=wide", "must be a number"),
        ("log-normal:sigma=nan", "sigma"),
        ("grid:m=1/two", "whole numbers separated by slashes"),
        ("transformers:models=llama-9", "no transformer 'llama-9'"),
        ("powers:least=64,most=16", "0 problems"),
        ("harvest:side=left", "no side 'left'; there are all, learned, held-out"),
        ("harvest:families=gpt9", "no family 'gpt9'"),
        ("harvest:kinds=poem", "no kind 'poem'"),
        ("eight-bit:models=gpt-9", "no model 'gpt-9'"),
        ("eight-bit:ops=mm", "no op 'mm'"),
    ],
)
def test_what_is_no_source_is_refused(text, says):
    with pytest.raises(CollectionError, match=says):
        mixed(1, 0, (text,))


# Files


def test_a_written_shapeset_is_read_back(tmp_path):
    problems = [*drawn("odd", 50), Problem.make("addmm", 4, 8, 16, "float16", bias=Bias.SCALAR)]
    write_shapeset(problems, tmp_path / "s.json", "test")
    assert problems_in(tmp_path / "s.json", seed=5) == problems


def test_what_a_shapeset_does_not_say_is_drawn_by_the_seed(tmp_path):
    shapes = [["mm", 16 * m, 64, 64] for m in range(1, 80)]
    document = {"source": "me", "columns": ["op", "M", "N", "K"], "shapes": shapes}
    (tmp_path / "s.json").write_text(json.dumps(document))
    problems = problems_in(tmp_path / "s.json", seed=0)
    assert [(str(p.op), p.M, p.N, p.K) for p in problems] == [tuple(s) for s in shapes]
    assert len({p.dtype for p in problems}) == 3
    assert len({(p.a.layout, p.b.layout) for p in problems}) == 3
    assert problems == problems_in(tmp_path / "s.json", seed=0)
    assert problems != problems_in(tmp_path / "s.json", seed=1)


def torch_diode(op: str = "mm", **fields: object) -> dict[str, Any]:
    shape: dict[str, object] = {
        "version": 1, "B": 1, "M": 32, "M_dtype": "float16", "N": 64, "K": 128,
        "K_dtype": "float16", "out_dtype": "float16", "out_size": [1, 32, 64],
        "out_stride": [2048, 64, 1],
    }  # fmt: skip
    return {"operations": {op: {"shapes": [{**shape, **fields}]}}}


def test_a_shapeset_of_torch_diode_is_read(tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps(torch_diode("bmm", B=4, out_dtype="float32")))
    (problem,) = problems_in(file, seed=0)
    assert (problem.op, problem.B, problem.M, problem.N, problem.K) == ("bmm", 4, 32, 64, 128)
    assert (problem.dtype, problem.out_dtype) == (DType.FLOAT16, DType.FLOAT32)


def test_shapes_of_no_op_are_mm_or_bmm(tmp_path):
    file = tmp_path / "s.json"
    shapes = [s for b in (1, 4) for s in torch_diode(B=b)["operations"]["mm"]["shapes"]]
    file.write_text(json.dumps({"shapes": shapes}))
    assert [(p.op, p.B) for p in problems_in(file, seed=0)] == [("mm", 1), ("bmm", 4)]


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("mm", {"K_dtype": "bfloat16"}),
        ("mm", {"out_stride": [2048, 1, 32]}),
        ("mm", {"M_dtype": "complex64"}),
        ("mm", {"M": "s77"}),
        ("convolution", {}),
    ],
)
def test_what_is_no_problem_of_ours_is_left_out_and_counted(tmp_path, op, fields):
    file = tmp_path / "s.json"
    file.write_text(json.dumps(torch_diode(op, **fields)))
    shapeset = read_shapeset(file)
    assert (shapeset.rows, shapeset.left_out) == ((), 1)


def test_the_stride_of_one_element_says_nothing(tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps(torch_diode(M=1, out_size=[1, 1, 64], out_stride=[7, 999, 1])))
    assert len(read_shapeset(file).rows) == 1


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "must be an object"),
        ({"shapes": {}}, "shapes is {}"),
        ({"shapes": [7]}, r"shapes\[0\] is 7"),
        ({"columns": ["op", "M", "N", "K"], "shapes": [["mm", 1, 2]]}, r"shapes\[0\] has 3 values"),
        ({"columns": ["op", "op"], "shapes": []}, "none of them twice"),
        ({"columns": ["op", "M", "N", "K"]}, "shapes is None"),
        ({"columns": ["op", "M", "N", "K"], "shapes": [["mm", 0, 2, 3]]}, r"shapes\[0\]: .*M is 0"),
        ({"columns": ["op", "M", "N", "K"], "shapes": [["mm", [1], 2, 3]]}, r"shapes\[0\]"),
        ({"columns": ["op", "colour"], "shapes": [["mm", "red"]]}, "unknown fields: colour"),
        (torch_diode(M=0), r"operations\.mm\.shapes\[0\]: .*M is 0"),
        (torch_diode(B=3), r"operations\.mm\.shapes\[0\]: .*batch"),
        (torch_diode(out_size=7), "out_size is 7"),
        ({"operations": {"mm": {"shapes": [{"M": 1}]}}}, "lacks the fields B, N"),
        ({"operations": {"mm": []}}, "must be an object"),
        ({"operations": None}, "must be an object"),
    ],
)
def test_a_malformed_shapeset_is_refused_with_the_place(tmp_path, document, says):
    (tmp_path / "s.json").write_text(json.dumps(document))
    with pytest.raises(DatasetError, match=says):
        problems_in(tmp_path / "s.json", seed=0)


def test_a_dataset_is_a_source_too(tmp_path, timings):
    for name in ("d.json", "d.msgpack.zst"):
        write_dataset(timings, tmp_path / name)
        assert problems_in(tmp_path / name, 0) == list(timings.problems)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    (tmp_path / "s.json").mkdir()
    with pytest.raises(DatasetError, match="cannot be written"):
        write_shapeset(drawn("zoo", 3), tmp_path / "s.json", "test")
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


# Named layers


def test_all_that_the_transformers_source_draws_is_named():
    assert all(map(models_of, drawn("transformers", 3000)))


def test_a_layer_and_both_its_gradients_are_of_its_models():
    forward = Problem.make("addmm", 7, 14336, 4096, "bfloat16", b_layout="col")
    input_gradient = Problem.make("mm", 7, 4096, 14336, "bfloat16")
    weight_gradient = Problem.make("mm", 14336, 4096, 7, "bfloat16", a_layout="col")
    for problem in (forward, input_gradient, weight_gradient):
        assert models_of(problem) == {"llama-3-8b", "mistral-7b"}
    assert models_of(Problem.make("mm", 7, 14336, 4097, "bfloat16")) == frozenset()
    assert models_of(Problem.make("bmm", 7, 14336, 4096, "bfloat16", B=2)) == frozenset()
    assert len(TRANSFORMERS) >= 20


def test_named_layers_are_held_out_together_or_by_model(timings):
    rest, named = split_named(timings)
    assert len(rest) + len(named) == len(timings) > len(rest) > 0
    assert all(models_of(named.problems[i]) for i in set(named.problem.tolist()))
    assert not any(models_of(rest.problems[i]) for i in set(rest.problem.tolist()))
    _, one = split_named(timings, ["llama-3-8b"])
    assert {"llama-3-8b" in models_of(one.problems[i]) for i in set(one.problem.tolist())} == {True}
    assert 0 < len(one) < len(named)


# Products of 8 bits and of experts


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b", "qwen3-235b-a22b", "llama-4"])
def test_models_with_experts_have_their_other_layers_in_8_bits(name):
    problems = list(islice(EightBit(models=(name,)).problems(0), 200))
    assert {str(p.op) for p in problems} == {"scaled_mm", "int_mm", "mm_plus_mm"}
    assert len({(p.N, p.K) for p in problems}) > 2


def test_the_models_that_people_serve_have_their_experts():
    families = {name.partition("-")[0] for name in EXPERTS}
    assert families >= {"deepseek", "qwen3", "gpt", "llama", "mixtral"}
    for name in EXPERTS:
        problems = list(islice(GroupedExperts(models=(name,)).problems(0), 1000))
        ops = {str(p.op) for p in problems}
        kinds = {"grouped_mm_rows", "grouped_mm_depth", "grouped_mm_batch"}
        assert ops == kinds | {f"scaled_{kind}" for kind in kinds}
        assert {p.b.layout for p in problems if p.op == "grouped_mm_rows"} == {"row", "col"}


def test_experts_in_8_bits_are_as_the_library_takes_them():
    found = mixed(200, 0, ("experts",), Wanted(types=("e4m3",)))
    assert {p.op for p in found} == {f"scaled_grouped_mm_{k}" for k in ("rows", "depth", "batch")}
    assert all(p.N % 16 == p.K % 16 == 0 for p in found)  # strides of operands and of the output
    fast = {(p.op, p.op_fields["fast_accum"]) for p in found}
    assert ("scaled_grouped_mm_depth", True) not in fast
    assert {("scaled_grouped_mm_rows", True), ("scaled_grouped_mm_rows", False)} <= fast


def test_products_of_8_bits_are_as_the_library_takes_them():
    for p in drawn("eight-bit"):
        if p.dtype.itemsize == 1:
            assert p.N % 16 == p.K % 16 == 0
            assert p.op != "int_mm" or p.M > 16
            assert p.bias == "none" or p.out_dtype != "float32"
    some = drawn("eight-bit:ops=scaled_mm,models=deepseek-v3", 20)
    assert {str(p.op) for p in some} == {"scaled_mm"}
    assert 7168 in {size for p in some for size in (p.M, p.N, p.K)}


def test_scales_of_blocks_are_drawn():
    products = drawn("eight-bit:ops=scaled_mm")
    found = {p.op_fields["scaling"] for p in products}
    assert found == {"tensor", "row", "1x128_128x128", "1x128_1x128"}
    by_blocks = [p for p in products if "128" in p.op_fields["scaling"]]
    assert all(p.N % 16 == p.K % 16 == 0 and p.bias == "none" for p in by_blocks)
    assert len({(p.N, p.K) for p in by_blocks}) > 10


def test_types_of_8_bits_can_be_asked_for():
    for types, expected in ((("e4m3",), {"float8_e4m3fn"}), (("int8",), {"int8"})):
        found = mixed(20, 0, ("eight-bit",), Wanted(types=types))
        assert {str(p.dtype) for p in found} == expected
