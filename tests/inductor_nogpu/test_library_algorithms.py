"""cuBLASLt's algorithms for products that get the library's kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

import diode_engine
from diode_engine.inductor.choosing import library_algorithms
from diode_engine.inductor.library import product as called
from diode_engine.inductor.library.cublaslt import CublasError, Result
from diode_engine.inductor.without_gpu import lower
from diode_engine.models.library_algorithms import Config
from tests.inductor_nogpu.conftest import LIBRARY, TRITON, empty, install_times, marked
from tests.models.test_library_algorithms import model_that_prefers

FIRST, KNOWN = Config(66, 20), Config(66, 23, custom=1)
CALL = "extern_kernels.diode_library_product("


class Library:
    version = 130100

    def __init__(self, refused: Sequence[Config] = ()) -> None:
        self.refused = refused
        self.asked = 0  # for the algorithms of a product

    def config(self, algorithm: Config) -> Config:
        return algorithm

    def changed(self, algorithm: Any, config: Config, before: Any = None) -> Config:
        return config


class Product:
    """As cublaslt.Product, where the heuristic lists FIRST."""

    types = (1, 2)

    def __init__(self, library: Library, *operands: torch.Tensor, **_: Any) -> None:
        self.library = library

    def list_algorithms(self, most: int) -> list[Any]:
        self.library.asked += 1
        return [SimpleNamespace(algorithm=FIRST, workspace=0, waves=1.0)]

    def ids(self) -> list[int]:
        return [66]

    def initial(self, number: int) -> int:
        return number

    def check(self, algorithm: Config) -> Any:
        if algorithm in self.library.refused:
            return None
        return SimpleNamespace(algorithm=algorithm, workspace=0, waves=1.0)


@pytest.fixture
def library(monkeypatch):
    made = Library()
    monkeypatch.setattr(library_algorithms, "model_for", lambda _: model_that_prefers(KNOWN))
    monkeypatch.setattr(library_algorithms, "library_of", lambda _: made)
    monkeypatch.setattr(library_algorithms, "Product", Product)
    return made


def calls(
    *, rows: int = 512, wide: int = 1024, aten: float = LIBRARY, **how: Any
) -> tuple[str, dict[str, Any]]:
    """The lines that call the library's kernels in a linear layer, and Diode's counts."""
    install_times(aten)
    dtype = how.get("dtype", torch.bfloat16)
    sizes = [(rows, 512), (wide, 512), *([(wide,)] if how.get("bias") else [])]
    program: Any = functional.linear
    if how.get("matrix"):
        sizes, program = [(rows, wide), (rows, 512), (512, wide)], torch.addmm

    def build() -> tuple[Any, Sequence[torch.Tensor]]:
        first, *others = [empty(*size, dtype=dtype) for size in sizes]
        return program, [marked(first, 0) if how.get("dynamic") else first, *others]

    options = {"max_autotune_gemm": True} | how.get("options", {})
    (source,) = lower(build, mode="default", options=options).sources
    lines = [x for x in source.splitlines() if "extern_kernels." in x or ".run(" in x]
    return "\n".join(lines), dict(diode_engine.get_stats())


@pytest.mark.parametrize("bias", [False, True])
def test_the_librarys_kernel_uses_the_fastest_algorithm(library, bias):
    lines, stats = calls(bias=bias)
    operator = "addmm" if bias else "mm"
    plan = f"{operator} 1x512x1024x512 bfloat16 by 66.23.0.1.0.0.1.0.0"
    assert CALL in lines
    assert f"plan='{plan}'" in lines
    assert "out=buf0" in lines
    assert stats["algorithms_chosen"] == 1
    assert stats["fallback_error"] == 0


@pytest.mark.parametrize(
    "how",
    [
        {"aten": TRITON},
        {"wide": 1028},  # rows of no whole 16 bytes
        {"rows": 8192},  # more than was timed
        {"dynamic": True},
        {"options": {"diode_batch_invariant": True}},
        {"options": {"cpp_wrapper": True}},
    ],
)
def test_torchs_own_call_stays(library, how):
    lines, stats = calls(**how)
    assert CALL not in lines
    assert stats["algorithms_chosen"] == 0
    assert stats["fallback_error"] == 0


@pytest.mark.parametrize("unlike", [{"refused": [KNOWN]}, {"version": 130200}], ids=str)
def test_an_algorithm_that_this_library_does_not_take_is_not_chosen(library, unlike):
    vars(library).update(unlike)
    lines, _ = calls()
    assert "extern_kernels.mm(" in lines


@pytest.mark.parametrize(("remembers", "asked"), [(True, 2), (False, 3)])
def test_the_algorithm_of_equal_products_is_found_once(library, remembers, asked):
    """Of three products of the same sizes, of which two also have the same strides."""
    install_times(LIBRARY)

    def build() -> tuple[Any, Sequence[torch.Tensor]]:
        return lambda x, w: x @ w @ w @ w.t(), [empty(512, 512) for _ in "xw"]

    options = {"max_autotune_gemm": True, "diode_cache_predictions": remembers}
    lowered = lower(build, mode="default", options=options)
    assert lowered.sources[0].count(CALL) == 3
    assert diode_engine.get_stats()["algorithms_chosen"] == 3
    assert library.asked == asked


def test_the_time_to_find_an_algorithm_counts_as_spent_choosing(library, monkeypatch):
    clock = time.perf_counter

    def slow(_):
        monkeypatch.setattr(time, "perf_counter", lambda: clock() + 1000)
        return library

    monkeypatch.setattr(library_algorithms, "library_of", slow)
    _, stats = calls()
    assert stats["seconds"] >= 1000
    assert stats["total_calls"] == 1


def test_a_matrix_is_added_without_a_copy(library):
    """By the heuristic's first algorithm where no other is faster; torch copies it first."""
    library.refused = [KNOWN]
    lines, _ = calls(matrix=True)
    assert CALL in lines
    assert "by 66.20." in lines


@pytest.mark.parametrize("failing", [True, False], ids=["it fails", "there is no GPU"])
def test_without_the_library_torchs_own_call_is_used(failing, monkeypatch):
    def fail(*_):
        raise CublasError("cublasLtCreate failed with status 1.")

    monkeypatch.setattr(library_algorithms, "model_for", lambda _: model_that_prefers(KNOWN))
    monkeypatch.setattr(called, "_known", called._Known())
    if failing:
        monkeypatch.setattr(library_algorithms, "library_of", fail)
    lines, stats = calls()
    assert "extern_kernels.mm(" in lines
    assert stats["fallback_error"] == 0


def test_a_gpu_without_a_model_has_no_such_integration(monkeypatch):
    monkeypatch.setattr(library_algorithms, "model_for", lambda _: None)
    lines, _ = calls()
    assert "extern_kernels.mm(" in lines
    status = diode_engine.get_integration_status()["integrations"]["library_algorithms"]
    assert status["state"] == "inactive"
    assert "nothing was measured" in status["reason"]


PLAN = str(called.Plan("mm 1x4x3x2 float32", False, KNOWN))


@pytest.mark.parametrize(
    "shapes", [((4, 2), (2, 3)), ((3,), (4, 2), (2, 3)), ((5, 4, 2), (5, 2, 3))]
)
def test_without_the_library_the_call_computes_as_torch(shapes, caplog, monkeypatch):
    monkeypatch.setattr(called, "_known", called._Known())
    inputs = [torch.randn(shape) for shape in shapes]
    out = torch.empty(*inputs[-2].shape[:-1], 3)
    for _ in range(2):
        called.diode_library_product(*inputs, out=out, plan=PLAN)
    wanted = inputs[-2] @ inputs[-1] + (inputs[0] if len(inputs) > 2 else 0)
    torch.testing.assert_close(out, wanted)
    assert len(caplog.records) == 1  # it is said once


def test_addresses_that_are_not_aligned_are_left_to_torch(monkeypatch):
    launched: list[tuple[int, ...]] = []

    def prepare(*_):
        return lambda *addresses: bool(launched.append(addresses))

    monkeypatch.setattr(called, "_prepare", prepare)
    monkeypatch.setattr(called, "_known", called._Known())
    a, b, out = torch.randn(4, 4), torch.randn(4, 4), torch.empty(17)
    called.diode_library_product(a, b, out=out[:16].view(4, 4), plan="1")
    assert launched == [(a.data_ptr(), b.data_ptr(), out.data_ptr(), 0)]
    odd = out[1:].view(4, 4)
    called.diode_library_product(a, b, out=odd, plan="1")
    assert len(launched) == 1
    torch.testing.assert_close(odd, a @ b)


def test_products_of_the_same_sizes_and_other_strides_are_prepared_apart(monkeypatch):
    prepared: list[Any] = []

    def prepare(plan, inputs, out):
        prepared.append([tensor.stride() for tensor in (*inputs, out)])
        return lambda *_: 0

    monkeypatch.setattr(called, "_prepare", prepare)
    monkeypatch.setattr(called, "_known", called._Known())
    a, b, out = (torch.randn(4, 4) for _ in range(3))
    wide = torch.empty(4, 8)[:, :4]
    products = [((a, b), out), ((a, b.t()), out), ((a.t(), b), out), ((a, b), wide),
                ((a[0], a, b), out), ((a, a, b), out)]  # fmt: skip
    for inputs, to in products * 2:
        called.diode_library_product(*inputs, out=to, plan="1")
    assert len(prepared) == len(products)


def test_a_plan_is_read_as_it_was_written():
    for tf32 in (False, True):
        plan = called.Plan("addmm 1x4x3x2 bfloat16", tf32, KNOWN)
        assert called.Plan.parse(str(plan)) == plan


def test_the_structure_that_is_checked_has_the_algorithm():
    assert Result.algorithm.size == 64
