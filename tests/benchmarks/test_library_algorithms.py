"""benchmarks/library_algorithms.py without a GPU: the binding's numbers and the rows."""

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

from diode_engine.core.hardware import KNOWN
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
    class WithoutHandle(cublaslt.Library):
        def __init__(self) -> None:
            self.calls = ctypes.CDLL(str(cuda_files("*/lib/libcublasLt.so*")[0]))

    library = WithoutHandle()
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
        from library_measuring import Capabilities

        return Capabilities([0, 1, 2], [0], 0, 0, 0, 0)


class Product:
    def __init__(self, library: Any, *_: Any, bias: Any = None, **__: Any) -> None:
        self.bias = bias

    def _result(self, tile: int) -> Any:
        made = cublaslt.Result()
        made.algorithm.data[0] = tile
        return made

    def list_algorithms(self, most: int) -> list[Any]:
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
    monkeypatch.setattr(library_algorithms, "steady", lambda calls, *_: [9.0 for _ in calls])
    return library_algorithms


def row_of(script: Any, task: Any) -> dict[str, Any]:
    row = {**task.key, "device": "H100", "cublaslt": 0, "error": ""}
    return row | script.measured(Library(), task, {})


def test_a_row_has_all_algorithms_and_a_wrong_one_does_not_count(script):
    import library_rows

    task = script.Task("odd", Problem.make("addmm", 40, 39, 33, "bfloat16", b_layout="col"))
    row = row_of(script, task)
    origins = [each[library_rows.COLUMNS.index("origin")] for each in row["algorithms"]]
    assert set(origins) == {"listed", "known", "varied"}
    right = library_rows.right_algorithms(row)
    assert [each["place"] for each in right[:2]] == [0, 1]
    assert len(right) < len(origins)
    assert all(each["tile"] != 2 and each["us"] == 9 for each in right)
    assert "torch      9.0 µs" in library_rows.line(row)
    assert "failed: lost" in library_rows.line({**task.key, "error": "lost"})


def test_for_the_products_of_rows_the_trees_say_what_is_timed(script, monkeypatch):
    import library_chooser as chooser

    monkeypatch.setattr(script, "detect", lambda: KNOWN["NVIDIA H200"])
    earlier = script.Task("learning", Problem.make("mm", 512, 512, 512, "bfloat16"))
    [task] = script.tasks_of([{**earlier.key, "error": ""}])
    found = row_of(script, task)["algorithms"]
    assert [each[1] for each in found[:2]] == ["listed", "listed"]
    assert {each[1] for each in found[2:]} == {"known"}
    assert script.EXPECTED - 2 <= len(found[2:]) <= script.EXPECTED
    row = row_of(script, task._replace(long=True))
    assert len(row["algorithms"]) == script.LONG
    earlier_row = {**row, "algorithms": [[*each[:-1], 8.0] for each in found]}
    [both] = chooser.in_long_turns(chooser.measured([earlier_row]), [row])
    assert both.us.tolist() == [9.0] * script.LONG
    assert both.short_us.tolist() == [8.0] * script.LONG


def test_an_older_row_is_read_without_its_aligned_strides():
    from library_rows import right_algorithms

    values = [1, 20, 36, 1, 0, 1, 3, 0, 5, 0, 1.0, 0.0, 12.5]
    algorithms = [["", "listed", *values, 11.5, 11.6], ["a+out", "listed", *values, None, None]]
    [only] = right_algorithms({"error_of_torch": 0.0, "algorithms": algorithms})
    assert (only["place"], only["cluster"], only["us"]) == (0, 5, 12.5)


def test_products_for_training_are_not_held_out(script):
    drawn = script.drawn_tasks(40)
    assert len(drawn) == 40
    assert not any(held_out_by(task.problem) for task in drawn)


@pytest.mark.parametrize("op", ["mm", "addmm", "baddbmm"])
def test_torch_s_call_has_the_result_that_is_checked(script, op):
    from library_measuring import Operands

    problem = Problem.make(op, 32, 48, 64, "float32", B=3 if op == "baddbmm" else 1)
    operands = Operands(problem, {})
    [error] = operands.errors([operands.torch_call()], operands.sets()[0])
    assert error is not None
    assert error < 1e-5


def test_the_products_of_every_file_can_be_measured(script):
    from library_measuring import POOL_BYTES, extent

    tasks = script.tasks_in(sorted(script.FOLDER.glob("*.json")))
    assert {task.source for task in tasks[:7]} == {file.stem for file in script.FOLDER.iterdir()}
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
            row = row_of(script, script.Task(source, problem))
            out.write(json.dumps(row) + "\n")
    fits: list[list[Problem]] = []
    monkeypatch.setattr(
        library_chooser, "fitted", lambda some, *_, **__: fits.append([m.problem for m in some])
    )
    monkeypatch.setattr(library_chooser, "predicted", lambda _, each: each.us * 0)
    command = ["library_chooser.py", str(file)]
    for judge, learned in (([], layers), (["--judge", str(file)], layers[1:])):
        monkeypatch.setattr(sys, "argv", [*command, *judge])
        library_chooser.main()
        assert fits[-1] == learned


def test_the_algorithms_of_a_model_bring_the_most_together(monkeypatch):
    """The second one is fast for a product that the first one and the list are slow for."""
    import library_chooser as chooser

    monkeypatch.setattr(chooser, "CONFIGS", 2)
    listed = chooser.Offer(Config(66), 0, 1.0, 0)
    fast, alike, other = (chooser.Offer(Config(66, tile=n), 0, 1.0) for n in (1, 2, 3))
    problem = Problem.make("mm", 32, 48, 64, "bfloat16")
    some = [
        chooser.Measured("", problem, [listed, fast, alike], chooser.np.array([10.0, 5.0, 6.0])),
        chooser.Measured("", problem, [listed, alike, other], chooser.np.array([10.0, 10.0, 9.0])),
    ]
    assert chooser.fast_configs(some) == (fast.config, other.config)


def test_half_of_what_an_algorithm_loses_in_long_turns_is_expected():
    import library_chooser as chooser

    offers = [chooser.Offer(Config(66, tile=20 + place), 0, 1.0, place) for place in (0, 1)]
    short, long = chooser.np.array([10.0, 8.0]), chooser.np.array([10.0, 10.0])
    some = [
        chooser.Measured("", Problem.make("mm", 512, n, 2048, "bfloat16"), offers, short)
        for n in range(256, 1024, 16)
    ]
    slowed = [each._replace(us=long, short_us=short) for each in some]
    for given, ratio in (([], 0.8), (slowed, 0.8**0.5)):
        model = chooser.fitted(some, chooser.SHIPPED.tiles, "H100", given)
        first, other = chooser.np.exp(chooser.predicted(model, some[7]))
        assert other / first == pytest.approx(ratio, abs=0.02)
