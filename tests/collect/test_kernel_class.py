"""Which problems one compiled kernel may serve."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diode_engine.core.candidate import Candidate
from diode_engine.core.operand import Bias, DType, Layout, Operand
from diode_engine.core.operators import find_operator
from diode_engine.core.problem import Problem
from diode_engine.core.resources import loads_per_thread
from diode_engine.inductor.lowering.kernel_class import (
    ALL_FIXED,
    Extent,
    KernelClass,
    SharedKeys,
    class_of,
    grid,
    serves,
    shared_classes,
)
from diode_engine.problems.sources import mixed
from diode_engine.problems.spaces import exhaustive_space
from tests.samples import shared_class, tile


def config(m=128, n=128, k=64, template="triton::mm", stages=3, warps=8):
    return tile(m, n, k, stages, warps, template)


def mm(m, n, k, dtype="bfloat16", **more):
    return Problem.make("mm", m, n, k, dtype, **more)


def test_sizes_that_divide_alike_share_a_class():
    cls = class_of(mm(2048, 2048, 2048), config())
    assert cls == class_of(mm(1111, 512, 192), config())
    assert cls.extents == {"B": Extent(1, True), "M": Extent(1), "N": Extent(16), "K": Extent(64)}
    assert cls.even_k


@pytest.mark.parametrize(
    "other",
    [
        mm(2048, 2056, 2048),  # N by 8
        mm(2048, 2048, 2080),  # a rest along K
        mm(2048, 2048, 2049),  # rows of odd length
        mm(2048, 2048, 2048, "float16"),
        mm(2048, 2048, 2048, b_layout="col"),
        mm(2048, 2048, 2048, a_align=8),
        mm(100, 2048, 2048),  # fewer rows than a block's
        mm(1, 2048, 2048),
        Problem.make("addmm", 2048, 2048, 2048, "bfloat16"),
        mm(2048, 2048, 2048, out_dtype="float32"),
    ],
)
def test_what_triton_would_compile_otherwise_is_another_class(other):
    cls = class_of(mm(2048, 2048, 2048), config())
    assert class_of(other, config()) != cls
    assert not serves(cls, other)


def test_the_columns_of_a_matter_where_they_lead():
    row, col = ({"a_layout": layout} for layout in ("row", "col"))
    assert class_of(mm(514, 512, 512, **row), config()).extents["M"] == Extent(1)
    assert class_of(mm(514, 512, 512, **col), config()).extents["M"] == Extent(2)


def test_k_matters_only_for_its_rest_where_it_leads_nothing():
    sizes = mm(512, 512, 520, a_layout="col"), mm(512, 512, 513, a_layout="col")
    assert len({class_of(p, config()) for p in sizes}) == 1
    assert len({class_of(p, config()) for p in (mm(512, 512, 520), mm(512, 512, 513))}) == 2


def test_a_padded_operand_has_its_contiguous_size_fixed():
    cls = class_of(mm(512, 512, 197, a_align=8), config())
    assert cls.extents["K"] == Extent(197, fixed=True)
    assert cls.fixed == {"B", "K"}


def test_sizes_can_be_fixed():
    problem = mm(2048, 2048, 2048)
    assert class_of(problem, config(), fixed="K").extents["K"] == Extent(2048, fixed=True)
    own = class_of(problem, config(), fixed=ALL_FIXED)
    assert serves(own, problem)
    assert not serves(own, mm(2049, 2048, 2048))


def test_what_32_bits_cannot_index_is_compiled_for_itself():
    assert class_of(mm(65536, 65536, 64), config()).fixed == ALL_FIXED


def test_libraries_and_huge_batches_have_no_class():
    assert class_of(mm(64, 64, 64), Candidate.make("aten::mm")) is None
    assert class_of(mm(64, 64, 64), Candidate.make("decompose_k", k_split=4)) is None
    huge = Problem.make("bmm", 16, 16, 16, "float16", B=65536)
    assert class_of(huge, config(16, 16, 16, "triton::bmm")) is None
    assert shared_class(mm(64, 64, 64), Candidate.make("aten::mm")) is None


def test_tf32_is_asked_for_from_a_size_up():
    def sized(*size):
        return class_of(mm(*size, "float32", allow_tf32=True), config()).tf32_sized

    assert sized(16, 512, 512)
    assert not sized(15, 512, 512)
    assert not sized(16, 511, 512)
    assert not class_of(mm(512, 512, 512, "float32"), config()).tf32_sized


def test_odd_strides_are_compiled_for_each_problem_and_short_loops_for_each_k():
    assert shared_class(mm(512, 512, 4096), config()).fixed == {"B"}
    assert shared_class(mm(512, 512, 128), config()).fixed == {"B", "K"}
    assert shared_class(mm(512, 513, 4096), config()).fixed == ALL_FIXED


def test_an_innermost_batch_is_compiled_for_each_problem():
    problem = Problem.make("bmm", 512, 512, 4096, "bfloat16", B=16, b_batch="inner")
    own = shared_class(problem, config(template="triton::bmm"))
    assert own == class_of(problem, config(template="triton::bmm"))
    assert own.fixed == ALL_FIXED
    assert serves(own, problem)
    assert not serves(own, Problem.make("bmm", 512, 512, 4096, "bfloat16", B=16, b_align=1))


@pytest.mark.parametrize(
    ("problem", "candidate", "loads", "own"),
    [
        (mm(8, 14336, 4096), config(16, 128, 128, stages=4, warps=2), 36, True),
        (mm(8, 14336, 4096), config(16, 128, 128, stages=4, warps=4), 18, False),
        (mm(64, 4096, 4096), config(64, 32, 128, stages=5, warps=2), 24, False),
        (mm(64, 4096, 4096), config(64, 128, 128, stages=5, warps=2), 48, True),
        (mm(64, 4096, 4096), config(64, 128, 128, warps=4), 24, False),
        (mm(64, 4096, 4096), config(128, 128, 128, warps=4), 32, False),  # wgmma
        (mm(64, 4096, 4096, "float32"), config(128, 128, 64, warps=4), 32, True),
        (mm(64, 4096, 4096, "float32", allow_tf32=True), config(128, 128, 64, warps=4), 32, False),
        (mm(64, 4096, 4096), config(32, 256, 128, "triton::mm_persistent_tma", warps=2), 0, False),
        (mm(64, 4096, 4096), config(16, 64, 64, stages=1, warps=4), 5, True),
        (mm(64, 4096, 4096), config(16, 32, 64, stages=1, warps=4), 3, False),
        (mm(64, 4100, 4096), config(32, 64, 128, warps=4), 20, False),  # of 16 and of 8 bytes
        (mm(64, 4100, 4096), config(32, 128, 128, warps=4), 36, True),
    ],
    ids=str,
)
def test_many_loads_a_thread_are_compiled_for_each_problem(problem, candidate, loads, own):
    assert loads_per_thread(problem, [candidate]) == loads
    fixed = shared_class(problem, candidate).fixed
    assert fixed == (ALL_FIXED if own else {"B"})


def test_the_grid_covers_the_output():
    problem = Problem.make("bmm", 100, 300, 64, "float16", B=5)
    cls = class_of(problem, config(template="triton::bmm"))
    assert grid(cls, problem, 132) == (1 * 3, 5, 1)
    tma = class_of(mm(4096, 4096, 64), config(template="triton::mm_persistent_tma"))
    assert grid(tma, mm(4096, 4096, 64), 132) == (132, 1, 1)
    assert grid(tma, mm(128, 4096, 64), 132) == (32, 1, 1)


sizes = st.integers(1, 5000) | st.sampled_from([16, 64, 96, 512, 4096])


@given(
    op=st.sampled_from(["mm", "addmm", "bmm", "baddbmm"]),
    size=st.tuples(sizes, sizes, sizes),
    layouts=st.tuples(*[st.sampled_from(["row", "col"])] * 2),
    align=st.sampled_from([None, 1, 2, 8, 16]),
    fixed=st.sets(st.sampled_from("BMNK")),
)
def test_a_class_serves_the_problem_that_it_was_made_for(op, size, layouts, align, fixed):
    batch = 3 if op in ("bmm", "baddbmm") else 1
    problem = Problem.make(
        op, *size, "float16", B=batch, a_layout=layouts[0], b_layout=layouts[1], a_align=align
    )
    cls = class_of(problem, config(32, 32, 32), fixed=fixed)
    assert serves(cls, problem)
    assert fixed <= cls.fixed
    for dim, extent in cls.extents.items():
        assert extent.holds(getattr(problem, dim))


def test_all_that_a_class_says_is_in_its_key():
    cls = class_of(Problem.make("mm", 512, 512, 4096, "float16"), config())
    other = {
        "candidate": config(32, 32, 32), "op": find_operator("addmm"), "dtype": DType.BFLOAT16,
        "out_dtype": DType.FLOAT32, "allow_tf32": True, "bias": Bias.VECTOR,
        "a": Operand(Layout.COL, 16), "b": Operand(Layout.ROW, 8),
        **dict.fromkeys("BMNK", Extent(7, fixed=True)),
        "whole_m": False, "whole_n": False, "tf32_sized": True, "attributes": (("fast", True),),
    }  # fmt: skip
    assert other.keys() == {field.name for field in fields(KernelClass)}
    changed = [replace(cls, **{name: value}) for name, value in other.items()]
    assert cls not in changed
    assert len({cls.key, *(each.key for each in changed)}) == 1 + len(other)


def test_keys_are_told_without_making_classes():
    problems = [
        *mixed(40, 5),
        *mixed(20, 5, ["odd"]),
        Problem.make("mm", 1, 4096, 64, "bfloat16"),
        Problem.make("bmm", 64, 64, 64, "float16", B=70_000),
    ]
    seen = set()
    for problem in problems:
        space = exhaustive_space(problem, "2.11.0")[::7]
        keys = SharedKeys(problem, space)
        for candidate, cls in zip(space, shared_classes(problem, space), strict=True):
            assert keys(candidate) == (None if cls is None else cls.key)
            seen.add(keys(candidate))
    assert len(seen) > 2000
