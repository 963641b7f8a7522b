"""With diode_batch_invariant a program takes one of several kernels by a dynamic number of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import diode_engine
from diode_engine.choosing.choice import Choice
from diode_engine.choosing.summation import order_of
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.inductor.hook import dynamic_rows
from diode_engine.inductor.lowering import branches
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import MMA, WGMMA, empty, marked
from tests.inductor_nogpu.test_one_order import INVARIANT, LAYERS, MODES, B, K, N, install

HINT = 300


@pytest.fixture(autouse=True)
def _proven(prove):
    """The two orders of half precision count as proven together, as they are on an H100."""
    prove([WGMMA, MMA])


def dynamic(layer: str, rows: int = HINT, **bounds: int) -> Any:
    """A layer with a dynamic number of rows, of which this is the first."""

    def build() -> Any:
        function, inputs = LAYERS[layer](rows)
        for x in inputs:
            if rows in x.shape:
                marked(x, x.shape.index(rows), **bounds)
        return function, inputs

    return build


@dataclass
class Program:
    """A generated program of one product, and the choice."""

    choice: Choice
    source: str

    @classmethod
    def of(cls, build: Any, mode: str = "max-autotune", **options: Any) -> Program:
        with diode_engine.profile_predictions() as profile:
            given = {"options": {**INVARIANT, **options}, **MODES[mode]}
            (source,) = lower(build, **given).sources
        (choice,) = profile.selections
        return cls(choice, source)

    @property
    def kernels(self) -> list[str]:
        return re.findall(r"^def (triton_tem_\w+)", self.source, re.MULTILINE)

    def tile_of(self, kernel: str) -> tuple[int, ...]:
        body = self.source[self.source.index(f"def {kernel}(") :]
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
        return tuple(int(re.search(rf"{name} : tl.constexpr = (\d+)", body)[1]) for name in names)

    def call(self, rows: int) -> tuple[str, Sequence[int]]:
        """The kernel that is called for so many rows, and its grid."""
        (line,) = [x for x in self.source.splitlines() if ".run(" in x and "triton_tem" in x]

        class Kernel:
            def __init__(self, name: str) -> None:
                self.name = name

            def run(self, *args: Any, stream: Any) -> tuple[str, Sequence[int]]:
                return self.name, args[-3:]

        class Names(dict[str, Any]):
            def __missing__(self, name: str) -> Any:
                if re.fullmatch(r"s\d+", name):
                    return rows
                if name.startswith("triton_tem"):
                    return Kernel(name)
                if re.fullmatch(r"(arg|buf|primals_)\w+|\w*stream0", name):
                    return None
                raise KeyError(name)

        found: tuple[str, Sequence[int]] = eval(line.strip(), {}, Names())  # noqa: S307
        return found


def tile_of(candidate: Candidate) -> tuple[int, ...]:
    return tuple(candidate.config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))


def taken(choice: Choice, rows: int) -> Candidate:
    return next(kernel for most, kernel in choice.by_rows if most is None or rows <= most)


@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "split"])
def test_each_range_of_rows_gets_its_kernel(layer):
    program = Program.of(dynamic(layer))
    choice = program.choice
    assert 2 <= len(choice.by_rows) == len(set(program.kernels)) <= 4
    assert {order_of(choice.problem, kernel, H200) for _, kernel in choice.by_rows} <= {WGMMA, MMA}
    limits = [most for most, _ in choice.by_rows]
    assert limits[-1] is None
    for rows in (2, HINT, 8192, *(m + more for m in limits[:-1] for more in (0, 1) if m)):
        kernel, grid = program.call(rows)
        block_m, block_n, _ = tile = program.tile_of(kernel)
        assert tile == tile_of(taken(choice, rows))
        batch = B if choice.problem.op.batched else 1
        assert list(grid) == [-(-rows // block_m) * -(-N // block_n), batch, 1]
    assert choice.candidates == (taken(choice, HINT),)
    assert diode_engine.get_stats()["fallbacks"] == 0
    assert diode_engine.get_stats()["benchmarked"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_the_kernels_do_not_depend_on_the_first_rows(mode):
    first, *others = [Program.of(dynamic("mm", rows), mode).choice for rows in (3, 300, 2000)]
    assert all(other.by_rows == first.by_rows for other in others)


def test_rows_of_two_dynamic_sizes():
    def build():
        return torch.nn.functional.linear, (marked(empty(3, 100, K), 0, 1), empty(N, K))

    program = Program.of(build)
    for size in (5, 70):
        kernel, _ = program.call(size)
        assert program.tile_of(kernel) == tile_of(taken(program.choice, size * size))
    assert program.call(5)[0] != program.call(70)[0]


def test_what_a_product_reads_is_freed_behind_it():
    def build():
        operands = marked(empty(HINT, K), 0), empty(K, K)
        return lambda a, b: torch.relu(torch.relu(a) @ b), operands

    source = lower(build, options=INVARIANT).sources[0]
    program = source[source.index("def call(") :]
    lines = [line.strip() for line in program.splitlines()]
    (call,) = [i for i, line in enumerate(lines) if "triton_tem" in line]
    assert "buf0" in lines[call]
    assert [i for i, line in enumerate(lines) if "del buf0" in line] > [call]
    assert sum(line.startswith("buf1 = empty_strided_cuda(") for line in lines) == 1


@pytest.mark.parametrize(
    "build",
    [
        dynamic("mm", 20, min=17, max=32),
        lambda: LAYERS["mm"](16),
    ],
    ids=["narrow bounds", "static"],
)
def test_one_kernel_where_more_gain_nothing(build):
    program = Program.of(build)
    assert program.choice.by_rows == ()
    assert len(program.kernels) == 1
    assert " if " not in program.source.split("def call(")[1].split("return")[0]


def test_one_kernel_where_the_program_cannot_choose(monkeypatch):
    def is_alone(**options):
        diode_engine.uninstall_diode_choices()
        install()
        program = Program.of(dynamic("mm"), **options)
        return program.choice.by_rows == () and program.source.count("def triton_tem") == 1

    assert not is_alone()
    if torch.__version__ >= (2, 13):  # before, it runs each kernel when it generates the program
        assert is_alone(cpp_wrapper=True)
    monkeypatch.setattr(dynamic_rows, "KERNEL_CALL", "no such class")  # as in an older torch
    assert is_alone()
    status = diode_engine.get_integration_status()["integrations"]["dynamic_rows"]
    assert "in another way" in status["reason"]


def test_where_branches_cannot_be_generated_one_kernel_is_called(monkeypatch):
    def fail(*_):
        raise MemoryError("full")

    monkeypatch.setattr(branches, "_join", fail)
    program = Program.of(dynamic("mm"))
    kernel, _ = program.call(8192)
    assert program.tile_of(kernel) == tile_of(program.choice.candidates[0])
    assert diode_engine.get_stats()["fallback_error"] == 1
