"""benchmarks/library_algorithms.py without a GPU: the binding's numbers, the rows, the tables."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from diode_engine.core.problem import Problem
from diode_engine.inductor.library import cublaslt
from diode_engine.models.library_algorithms import Config
from diode_engine.problems.splits import held_out_by


def cuda_files(pattern: str) -> list[Path]:
    """NVIDIA's files that come with a CUDA build of torch."""
    found = importlib.util.find_spec("nvidia")
    places = [] if found is None else found.submodule_search_locations or []
    files = [file for place in places for file in Path(place).glob(pattern)]
    if not files:
        pytest.skip("NVIDIA's libraries come with torch's CUDA builds")
    return files


def test_the_structures_have_the_library_s_sizes():
    assert ctypes.sizeof(cublaslt.Algorithm) == 64
    assert ctypes.sizeof(cublaslt.Result) == 96
    assert cublaslt.Result.state.offset == 72


def test_the_numbers_are_the_header_s():
    text = cuda_files("*/include/cublasLt.h")[0].read_text()
    fields = ("ID", "TILE_ID", "STAGES_ID", "SPLITK_NUM", "REDUCTION_SCHEME", "CTA_SWIZZLING",
              "CUSTOM_OPTION", "INNER_SHAPE_ID", "CLUSTER_SHAPE_ID")  # fmt: skip
    for name, (number, kind) in zip(fields, cublaslt.ATTRIBUTES, strict=True):
        found = re.search(rf"(u?int\d+_t)[^*]*\*/\s*CUBLASLT_ALGO_CONFIG_{name} = (\d+)", text)
        assert found, name
        assert (int(found[2]), ctypes.sizeof(kind) * 8) == (number, int(found[1][-4:-2])), name


def test_an_algorithm_keeps_what_is_set():
    path = cuda_files("*/lib/libcublasLt.so*")[0]
    library = cublaslt.Library(str(path), handle=False)
    config = Config(0, 20, 36, 4, 2, 1, 3, 4, 5)
    changed = library.changed(cublaslt.Algorithm(), config)
    assert changed is not None
    assert library.config(changed) == config


class Library:
    """A library of two algorithms, of which the one with tile 2 is wrong."""

    version = 0

    def config(self, algorithm: Any) -> Any:
        return Config(1, tile=algorithm.data[0])

    def changed(self, algorithm: Any, config: Any) -> Any:
        made = cublaslt.Algorithm()
        made.data[0] = config.tile
        return made

    def capabilities(self, algorithm: Any) -> Any:
        return cublaslt.Capabilities([0, 1, 2], [0], 0, 0, 0, 0)


class Product:
    def __init__(self, library: Any, *_: Any, bias: Any = None, **__: Any) -> None:
        self.bias = bias

    def _result(self, tile: int) -> Any:
        made = cublaslt.Result()
        made.algorithm.data[0] = tile
        return made

    def listed(self, most: int) -> list[Any]:
        return [self._result(0), self._result(1)]

    def ids(self) -> list[int]:
        return [1]

    def initial(self, number: int) -> Any:
        return self._result(0).algorithm

    def check(self, algorithm: Any) -> Any:
        return self._result(algorithm.data[0])


def call(self: Any, product: Product, found: Any) -> Any:
    """As Operands.call."""

    def run(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        made = a @ b if product.bias is None else torch.addmm(product.bias, a, b)
        out.copy_(made * (0 if found.algorithm.data[0] == 2 else 1))

    return run


@pytest.fixture
def script(monkeypatch):
    import library_algorithms
    import library_measuring

    monkeypatch.setattr(library_measuring, "DEVICE", "cpu")
    monkeypatch.setattr(library_measuring, "POOL_BYTES", 1 << 20)
    monkeypatch.setattr(library_measuring, "Product", Product)
    monkeypatch.setattr(library_measuring.Operands, "call", call)
    monkeypatch.setattr(library_algorithms, "quick", lambda calls, sets: [9.0 for _ in calls])
    monkeypatch.setattr(library_algorithms, "graph_of", lambda call, sets: call(*sets[0]))
    times = {"torch": 10.0, "again": 10.0}
    monkeypatch.setattr(
        library_algorithms, "in_turn",
        lambda ways, *_: {name: [times.get(name, 5.0)] * 8 for name in ways},
    )  # fmt: skip
    return library_algorithms


def test_a_row_has_all_algorithms_and_a_wrong_one_does_not_count(script, capsys):
    import library_report

    problem = Problem.make("addmm", 40, 39, 33, "bfloat16", b_layout="col")
    task = script.Task("odd", problem, "")
    row = {**task.key, "device": "H100", "error": "", **script.measured(Library(), task, {})}
    algorithms = [
        dict(zip(library_report.COLUMNS, each, strict=True)) for each in row["algorithms"]
    ]
    wrong = [each for each in algorithms if each["tile"] == 2]
    assert wrong
    assert all(each["error"] > 0.5 for each in wrong)
    assert {each["aligned"] for each in algorithms} == {"", "a", "b", "out", "a+b+out"}
    assert set(row["us"]) == {"torch", "again", "copy a", "copy b", "copy out"}
    for each in wrong:
        each["us"] = each["chosen_us"] = 0.01
    row["algorithms"] = [list(each.values()) for each in algorithms]
    library_report.show([row, {**task.key, "error": "lost"}])
    said = capsys.readouterr().out
    assert "any                              1  2.000" in said
    assert "failed: lost" in said


def test_a_row_for_training_has_no_times_of_the_second_kind(script):
    import library_report

    task = script.Task(script.LEARNING, Problem.make("mm", 40, 39, 33, "bfloat16"), "")
    row = {**task.key, "device": "H100", "error": ""}
    row |= script.measured_for_training(Library(), task, {})
    algorithms = [
        dict(zip(library_report.COLUMNS, each, strict=True)) for each in row["algorithms"]
    ]
    assert {each["origin"] for each in algorithms} == {"listed", "known", "varied"}
    assert {each["quick_us"] for each in algorithms} == {9.0}
    assert all(each["us"] is None for each in algorithms)
    assert "torch      9.0 µs" in library_report.line(row)


def test_products_for_training_are_not_held_out(script):
    drawn = script.drawn_tasks(40)
    assert len(drawn) == 40
    assert not any(held_out_by(task.problem) for task in drawn)


@pytest.mark.parametrize("epilogue", ["relu", "gelu", "gelu_aux", "dgelu"])
def test_torch_s_call_has_the_epilogue_that_is_checked(script, epilogue):
    from library_measuring import Operands

    operands = Operands(Problem.make("addmm", 32, 48, 64, "float32"), epilogue, {})
    assert (operands.errors([operands.torch_call()], operands.sets("")[0])[0] or 0) < 1e-5


def test_the_products_of_every_file_can_be_measured(script):
    from library_measuring import POOL_BYTES, extent

    tasks = list(script.tasks_in(sorted(script.FOLDER.glob("*.json"))))
    assert {task.source for task in tasks[:8]} == {file.stem for file in script.FOLDER.iterdir()}
    for task in tasks:
        shapes = task.problem.input_shapes()
        size = sum(extent(*shapes[name][:2]) for name in "ab") * task.problem.dtype.itemsize
        assert size <= 3 << 29, (task, POOL_BYTES)


def test_a_product_that_is_judged_is_not_learned(script, monkeypatch, tmp_path):
    """Equal are products of the same sizes, type and layouts; one with a bias is no other."""
    import library_chooser

    judged = Problem.make("mm", 32, 48, 64, "bfloat16")
    layers = [
        Problem.make("addmm", 32, 48, 64, "bfloat16"),
        Problem.make("mm", 32, 48, 64, "float16"),
        Problem.make("mm", 32, 48, 64, "bfloat16", b_layout="col"),
        Problem.make("mm", 32, 48, 72, "bfloat16"),
    ]
    file = tmp_path / "rows.jsonl"
    with file.open("w") as out:
        for source, problem in (("aligned", judged), *(("prefill", layer) for layer in layers)):
            task = script.Task(source, problem, "")
            row = {**task.key, "error": "", "cublaslt": 0}
            row |= script.measured_for_training(Library(), task, {})
            out.write(json.dumps(row) + "\n")
    fits: list[list[Problem]] = []
    monkeypatch.setattr(
        library_chooser, "fitted", lambda some, *_, **__: fits.append([m.problem for m in some])
    )
    monkeypatch.setattr(library_chooser, "predicted", lambda _, each: each.us * 0)
    tiles = tmp_path / "cublasLt.h"
    tiles.write_text("CUBLASLT_MATMUL_TILE_8x8 = 1,")
    command = ["library_chooser.py", str(file), "--tiles", str(tiles)]
    for judge, learned in (([], layers), (["--judge", str(file)], layers[1:])):
        monkeypatch.setattr(sys, "argv", [*command, *judge])
        library_chooser.main()
        assert fits[-1] == learned
