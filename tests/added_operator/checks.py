"""What an operator has once it is registered. tests/test_added_operator.py runs this file in a
process of its own, whose table of operators has one additional line (line.py)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor.kernel_inputs import MMKernelInputs

from diode_app.widgets.command_form import first_value, form_options
from diode_engine import features
from diode_engine.choosing.stats import OTHER_OPS
from diode_engine.cli import main
from diode_engine.collect.planning.plan import Plan, Rate
from diode_engine.collect.workers import operands
from diode_engine.collect.workers.inputs import random_inputs, reference
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.operators import OPERATORS, register
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.errors import QueryError, RecordError
from diode_engine.inductor.fusion import epilogue
from diode_engine.inductor.lowering.candidates import is_broadcast, problem_of
from diode_engine.inductor.lowering.kernel_class import class_of
from diode_engine.models.artifact import save_artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, Manifest
from diode_engine.problems.sources import OPS, Wanted, mixed, read_shapeset
from diode_engine.problems.sources.shapeset import write_shapeset
from diode_engine.problems.spaces import exhaustive_space
from diode_engine.store import (
    Store,
    export_dataset,
    import_dataset,
    maintenance,
    problem_counts,
    query,
    read_dataset,
    soundness,
)
from tests.added_operator.paired_mm import PAIRED_MM
from tests.samples import weighing

USUAL = Problem.make("paired_mm", 96, 80, 64, "float16", b_layout="col")
ROWS = Problem.make("paired_mm", 96, 80, 64, "bfloat16", scaling="row", c_layout="col")
MANY = Problem.make("paired_mm", 96, 160, 64, "float16", scaling="row", times=64)
HERE = Environment(H200, "570.1", "2.13.0", "3.7.1")


def test_problems_and_keys() -> None:
    assert (USUAL.op, str(USUAL.out_dtype), str(ROWS.out_dtype)) == (
        "paired_mm", "float32", "bfloat16",
    )  # fmt: skip
    assert USUAL.flops == 4 * 96 * 80 * 64
    assert USUAL.to_dict() == {
        **Problem.make("mm", 96, 80, 64, "float16", b_layout="col", out_dtype="float32").to_dict(),
        "op": "paired_mm",
    }
    for problem in (USUAL, ROWS, MANY):
        assert Problem.from_dict(json.loads(json.dumps(problem.to_dict()))) == problem
    same = Problem.from_dict({**USUAL.to_dict(), "scaling": "tensor", "times": 1})
    assert (same, same.key) == (USUAL, USUAL.key)
    assert Problem.from_dict({**USUAL.to_dict(), "scaling": "row"}).key != USUAL.key
    assert "scaling=row" in str(ROWS)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"B": 2}, "only bmm, baddbmm, .* have a batch"),
        ({"bias": "vector"}, "must be one of none"),
        ({"dtype": "float32"}, "must be one of float16, bfloat16"),
        ({"scaling": "column"}, "must be one of 'tensor', 'row'"),
        ({"times": 100}, "times = 100; it must be a whole number from 1 to 99"),
        ({"times": True}, "times = True; it must be a whole number"),
        ({"times": 2.0}, "times = 2.0; it must be a whole number"),
        ({"op": "mm", "scaling": "row"}, "unknown fields: scaling"),
    ],
)
def test_impossible_problems_are_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(RecordError, match=says):
        Problem.from_dict({**USUAL.to_dict(), **fields})


def test_a_name_is_registered_once() -> None:
    with pytest.raises(RecordError, match="paired_mm already"):
        register(PAIRED_MM)
    assert list(OPERATORS).count("paired_mm") == 1


@pytest.mark.parametrize("problem", [USUAL, ROWS], ids=str)
def test_operands_and_the_reference(problem: Problem) -> None:
    cpu = torch.device("cpu")
    a, b, c, d, scale = inputs = random_inputs(problem, cpu)
    assert [tuple(x.shape) for x in inputs[:4]] == [(96, 64), (64, 80)] * 2
    assert [x.stride() for x in (a, d)] == [(64, 1), (80, 1)]
    assert (b.stride(0) == 1) == (problem is USUAL)
    assert (c.stride(0) == 1) == (problem is ROWS)
    assert tuple(scale.shape) == ((1,) if problem is USUAL else (96, 1))
    assert (scale.dtype, bool((scale >= 1).all())) == (torch.float32, True)
    out = reference(problem, inputs)
    right = scale * (a.float() @ b.float() + c.float() @ d.float())
    assert (str(out.dtype), out.shape) == (f"torch.{problem.out_dtype}", problem.output_size)
    torch.testing.assert_close(out.float(), right, rtol=0.02, atol=0.5)


@pytest.mark.parametrize("problem", [USUAL, ROWS], ids=str)
def test_operands_that_rotate(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=1 << 26)
    )
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    rotating = operands.Operands(problem, operands.Pools(torch.device("cpu"), 1 << 12))
    places = [rotating.next() for _ in range(3)]
    assert len({place[0] for place in places}) == 3
    for place in places:
        inputs, out = rotating.tensors(place)
        assert tuple(x.data_ptr() for x in (*inputs, out)) == place
        assert [(x.shape, x.stride()) for x in inputs] == [
            (shape.size, shape.stride) for shape in problem.input_shapes().values()
        ]
        assert reference(problem, inputs).shape == out.shape


def test_what_inductor_gives_is_read() -> None:
    def given(problem: Problem) -> Any:
        shapes = list(problem.input_shapes().values())
        inputs: Any = object.__new__(MMKernelInputs)  # without the nodes of a graph
        inputs.mnk_hinted = lambda: (problem.M, problem.N, problem.K)
        inputs.shapes_symbolic = lambda: [shape.size for shape in shapes]
        inputs.strides_symbolic = lambda: [shape.stride for shape in shapes]
        inputs.dtypes = lambda: [getattr(torch, shape.dtype) for shape in shapes]
        inputs.out_dtype = lambda: getattr(torch, problem.out_dtype)
        return inputs

    for problem in (USUAL, ROWS):
        assert problem_of(given(problem), "paired_mm") == problem
        assert not is_broadcast(given(problem), "paired_mm")
    padded = given(USUAL)
    padded.strides_symbolic = lambda: [(64, 1), (1, 64), (64, 1), (96, 1), (1,)]
    assert problem_of(padded, "paired_mm") is None
    assert "paired_mm" not in OTHER_OPS
    # torch has no such op: nothing of its graphs is one
    assert all("paired" not in str(product) for product in epilogue._PRODUCTS)
    assert class_of(USUAL, exhaustive_space(USUAL)[-1]) is None


def test_features() -> None:
    candidates = exhaustive_space(USUAL)
    assert {c.template for c in candidates} == {"aten::mm", "triton::mm"}
    rows = np.zeros(len(candidates), np.intp), np.arange(len(candidates))
    assert features.supported((USUAL,), candidates, *rows).all()
    x = features.matrix((USUAL,), candidates, *rows, H200)
    assert np.isfinite(x).all()
    of = dict(zip(features.NAMES, x[0].tolist(), strict=True))
    matrices = sum(96 * 64 + 64 * 80 for _ in "ac") * 2
    assert of["log2_flops"] == pytest.approx(np.log2(USUAL.flops))
    assert of["log2_bytes"] == pytest.approx(np.log2(matrices + 96 * 80 * 4 + 4))
    rest = features.space(USUAL, candidates, H200).rest
    assert np.array_equal(rest, x[:, features.PROBLEM_COLUMN_COUNT :].T)


def test_a_plan_and_sources(tmp_path: Path) -> None:
    assert "paired_mm" in OPS
    assert "paired_mm" in first_value(form_options("collect")["ops"]).split(",")
    drawn = mixed(5, 0, ("skinny",), Wanted(ops=("paired_mm",), types=("fp16", "bf16")))
    assert {str(p.op) for p in drawn} == {"paired_mm"}
    assert {str(p.dtype) for p in mixed(20, 0, ("grid:op=paired_mm",))} == {"float16", "bfloat16"}
    summary = Plan.for_problems([USUAL, ROWS]).summary(Rate(1.0, "a test"))
    assert summary["by_op"] == {
        "paired_mm": {"problems": 2, "candidates": 2 * len(exhaustive_space(USUAL))}
    }
    file = tmp_path / "shapes.json"
    problems = [USUAL, ROWS, Problem.make("mm", 1, 2, 3, "float16")]
    write_shapeset(problems, file, "a test")
    assert read_shapeset(file).problems(0) == problems


def timings() -> TimingTable:
    """Timings of some candidates: three times the base time of the features."""
    candidates = exhaustive_space(USUAL)[::40]
    rows = np.zeros(len(candidates), np.intp), np.arange(len(candidates))
    x = features.matrix((USUAL,), candidates, *rows, H200)
    us = 3 * np.exp2(x[:, features.BASE].astype(np.float64))
    return TimingTable.from_records(
        (USUAL, candidate, HERE, Timing(min_us=float(t)))
        for candidate, t in zip(candidates, us, strict=True)
    )


def test_a_row_in_the_store(tmp_path: Path) -> None:
    table = timings()
    with Store.open(tmp_path / "diode.db") as store:
        run = store.start_run("collect", {})
        store.add(run, table)
        (row,) = query.problems(store, f"op:paired_mm flops:{USUAL.flops:.0f}")
        assert (row.problem, row.timings) == (USUAL, len(table))
        assert query.problems(store, f"flops:{USUAL.flops / 2:.0f}") == []
        assert [s.values for s in problem_counts.statistics(store, by=("op",))] == [("paired_mm",)]
        unusual = TimingTable.from_records(
            (problem, table.candidates[0], HERE, Timing(min_us=1.0)) for problem in (ROWS, MANY)
        )
        store.add(run, unusual)
        assert query.problems(store, "op:paired_mm m:96")[1].problem == ROWS
        assert set(store.read().problems) == {USUAL, ROWS, MANY}
        assert store.stats().problems == 3
        for asked, found in (
            ("scaling:row", {ROWS, MANY}), ("scaling:tensor", {USUAL}), ("times:64", {MANY}),
            ("times:6", set()), ("times:1 c_layout:col", {ROWS}), ("-scaling:row", {USUAL}),
        ):  # fmt: skip
            assert {row.problem for row in query.problems(store, asked)} == found, asked
        with pytest.raises(QueryError, match="a whole number from 1 to 99"):
            query.problems(store, "times:100")
    assert soundness.check(tmp_path / "diode.db").problems == ()
    maintenance.copy(tmp_path / "diode.db", tmp_path / "copy.db")
    with Store.open(tmp_path / "copy.db") as store:
        assert set(store.read().problems) == {USUAL, ROWS, MANY}
        file = tmp_path / "timings.msgpack"
        export_dataset(store, file)
    assert {p.key for p in read_dataset(file).problems} == {USUAL.key, ROWS.key, MANY.key}
    with Store.open(tmp_path / "other.db") as store:
        import_dataset(store, file)
        assert set(store.read().problems) == {USUAL, ROWS, MANY}


def test_an_explanation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tripled = weighing({}, np.log(3), residual=True)
    folder = tmp_path / "model"
    manifest = Manifest(
        name="tripled", family="", hardware=H200, coverage=Coverage.make(timings()), data=Data()
    )
    save_artifact(folder, manifest, (tripled,))
    asked = ["explain", "paired_mm", "96", "80", "64", "--dtype", "fp16", "--layouts", "row/col"]
    assert main([*asked, "--model", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert Problem.from_dict(found["problem"]) == USUAL
    space = exhaustive_space(USUAL)
    assert found["launchable"] == int(fits(USUAL, space, H200).sum())
    assert {row["template"] for row in found["ranked"]} <= {"aten::mm", "triton::mm"}
    assert found["compared"]["factors"]
