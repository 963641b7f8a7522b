"""Capabilities, operands, references and times for `library_algorithms.py`."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_int32, c_size_t, c_uint32
from functools import partial
from typing import Any, NamedTuple

import torch

from diode_engine.core.problem import Problem
from diode_engine.inductor.library import cublaslt
from diode_engine.inductor.library.cublaslt import Algorithm, CublasError, Product, Result

ALL_BYTES, MOST_SETS, POOL_BYTES = 256e6, 200, 3 << 29
WARM, ROUNDS, GRAPH_US, LONG_US, MOST_CALLS = 2, 7, 120, 24e3, 16
DEVICE = "cuda"
TRY_SECONDS = 4  # of first launches
PLACES = 64  # rows and columns that are checked

Tensors = tuple[torch.Tensor, ...]


class Capabilities(NamedTuple):
    """What may be set of an algorithm."""

    tiles: Sequence[int]
    stages: Sequence[int]
    split_k: int
    reductions: int  # a mask
    swizzle: int
    custom: int  # the largest


class Library(cublaslt.Library):
    """cuBLASLt, which also says what may be set of an algorithm."""

    def capabilities(self, algorithm: Algorithm) -> Capabilities:
        """cublasLtMatmulAlgoCapAttributes_t."""

        def several(attribute: int) -> list[int]:
            size = c_size_t()
            get = partial(
                self.status, "MatmulAlgoCapGetAttribute", byref(algorithm), c_int(attribute)
            )
            if get(None, c_size_t(0), byref(size)) or not size.value:
                return []
            values = (c_uint32 * (size.value // 4))()
            return [] if get(values, size, byref(c_size_t())) else list(values)

        def one(attribute: int) -> int:
            value, written = c_int32(), c_size_t()
            failed = self.status(
                "MatmulAlgoCapGetAttribute", byref(algorithm), c_int(attribute), byref(value),
                c_size_t(4), byref(written),
            )  # fmt: skip
            return 0 if failed else int(value.value)

        return Capabilities(several(6) or [0], several(13) or [0], one(0), one(1), one(2), one(7))


class Operands:
    """The operands of one product: several sets in one buffer of random numbers, together well
    over the cache. All sets have the same bias (or None) and output."""

    def __init__(self, problem: Problem, pools: dict[torch.dtype, torch.Tensor]):
        self.problem = problem
        dtype = getattr(torch, problem.dtype)
        if dtype not in pools:
            size = POOL_BYTES // dtype.itemsize
            pools[dtype] = torch.empty(size, dtype=dtype, device=DEVICE).normal_()
        self.pool = pools[dtype]
        self.shapes = problem.input_shapes()
        self.bias = None
        if "bias" in self.shapes:
            size, stride, _ = self.shapes["bias"]
            self.bias = torch.empty_strided(size, stride, dtype=dtype, device=DEVICE).normal_()
        self.out = torch.empty(problem.output_size, dtype=dtype, device=DEVICE)

    def sets(self) -> list[Tensors]:
        """Sets of a, b and out."""
        a, b = (self.shapes[name][:2] for name in "ab")
        each = extent(*a) + extent(*b)
        fit = self.pool.numel() // each
        if fit < 1:
            raise CublasError("The operands are larger than the buffer.")
        wanted = max(2, int(ALL_BYTES / (each * self.out.itemsize)) + 1)
        return [
            (
                self.pool[i * each :].as_strided(*a),
                self.pool[i * each + extent(*a) :].as_strided(*b),
                self.out,
            )
            for i in range(min(MOST_SETS, wanted, fit))
        ]

    def torch_call(self) -> Callable[..., Any]:
        """What plain Inductor calls: the library's product."""
        function = getattr(torch, str(self.problem.op))
        before = () if self.bias is None else (self.bias,)
        return lambda a, b, out: function(*before, a, b, out=out)

    def product(self, library: Library, given: Tensors) -> Product:
        return Product(library, *given, bias=self.bias, tf32=self.problem.allow_tf32)

    def call(self, product: Product, found: Result) -> Callable[..., None]:
        """The product by an algorithm: a function of a, b and out."""
        launch, bias = product.launcher(found), 0 if self.bias is None else self.bias.data_ptr()

        def run(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
            if status := launch(a.data_ptr(), b.data_ptr(), out.data_ptr(), bias):
                raise CublasError(f"cublasLtMatmul failed with status {status}.")

        return run

    def errors(self, calls: Sequence[Callable[..., Any]], given: Tensors) -> list[float | None]:
        """How far the result of each call is from float64's at most, on some rows and columns,
        divided by the largest; None where the call fails."""
        a, b, out = (x if x.dim() == 3 else x[None] for x in given)
        r, c = (places(n).to(out.device) for n in out.shape[1:])
        want = a[-1][r].double() @ b[-1][:, c].double()
        if self.bias is not None:
            want += self.bias.expand(out.shape)[-1][r][:, c].double()
        scale = want.abs().max()
        errors: list[torch.Tensor] = []
        worked = []
        end = time.monotonic() + TRY_SECONDS
        for call in calls:
            out.fill_(torch.nan)
            try:
                if time.monotonic() > end:
                    raise CublasError("The kernels take too long to load.")
                call(*given)
                worked.append(True)
            except CublasError:
                worked.append(False)
            errors.append((out[-1][r][:, c].double() - want).abs().max() / scale)
        told = torch.stack(errors).nan_to_num(9e9, 9e9, 9e9).tolist()
        return [error if works else None for error, works in zip(told, worked, strict=True)]


def places(length: int) -> torch.Tensor:
    """Some of the places of a dimension; the first and the last are among them."""
    drawn = torch.randint(length, (PLACES - 2,), generator=torch.Generator().manual_seed(0))
    return torch.cat([drawn, torch.tensor([0, length - 1])])


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """The elements of a strided tensor's storage, rounded up to 256 bytes and more."""
    last = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return -(-(last + 1) // 128) * 128


def steady(
    calls: Sequence[Callable[..., Any]], sets: Sequence[Tensors], us: float, long: bool = False
) -> list[float]:
    """Microseconds of each call on a GPU that stays busy, as in a program: CUDA graphs of some
    calls, whose operands are not in the cache, in shuffled turns; the median of ROUNDS turns, or
    one `long` turn after another, in which the GPU's power limits its clock. A call takes `us` or
    more."""
    count = max(1, min(MOST_CALLS, round(GRAPH_US / us)))
    repeats = max(1, round(LONG_US / us / count)) if long else 1
    warm, rounds = (1, 1) if long else (WARM, ROUNDS)
    side, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    graphs = [torch.cuda.CUDAGraph() for _ in calls]
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for i, (call, graph) in enumerate(zip(calls, graphs, strict=True)):
            graph.capture_begin(pool, capture_error_mode="thread_local")
            for j in range(count):
                call(*sets[(i * count + j) % len(sets)])
            graph.capture_end()
    torch.cuda.synchronize()
    order, rng = list(range(len(calls))), random.Random(0)
    events: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in calls]
    for _ in range(warm + rounds):
        rng.shuffle(order)
        for i in order:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(repeats):
                graphs[i].replay()
            end.record()
            events[i].append((start, end))
    torch.cuda.synchronize()
    medians = [statistics.median(s.elapsed_time(e) for s, e in each[warm:]) for each in events]
    graphs.clear()
    torch.cuda.empty_cache()
    return [median * 1e3 / count / repeats for median in medians]


def self_check(library: Library) -> None:
    """Compares cuBLASLt's products with float64's. Ends the process where they are wrong."""
    for problem in (
        Problem.make("mm", 320, 768, 512, "bfloat16", b_layout="col"),
        Problem.make("mm", 256, 136, 264, "float16", a_layout="col"),
        Problem.make("addmm", 257, 515, 129, "float16"),
        Problem.make("addmm", 64, 128, 256, "bfloat16", bias="matrix"),
        Problem.make("mm", 128, 256, 512, "float32", allow_tf32=True),
        Problem.make("bmm", 64, 128, 256, "bfloat16", B=3, a_layout="col"),
        Problem.make("baddbmm", 64, 128, 256, "float32", B=3),
    ):
        try:
            said = checked(library, problem)
        except (CublasError, RuntimeError) as error:
            said = str(error)
        if said:
            sys.exit(f"The binding of cuBLASLt {library.version} fails for {problem}: {said}")


def checked(library: Library, problem: Problem) -> str:
    """What is wrong with the heuristic's first algorithm; empty where nothing is."""
    torch.backends.cuda.matmul.allow_tf32 = problem.allow_tf32
    operands = Operands(problem, {})
    given = operands.sets()[0]
    product = operands.product(library, given)
    found = product.list_algorithms(4)
    if not found:
        return "the heuristic lists no algorithm."
    config = library.config(found[0].algorithm)
    if config.id not in product.ids() or product.check(found[0].algorithm) is None:
        return f"its first algorithm, {config}, is not among the ids, or fails its own check."
    calls = [operands.torch_call(), *(operands.call(product, each) for each in found)]
    plain, *errors = operands.errors(calls, given)
    limit = 4 * (plain or 0) + 1e-5
    good = [error for error in errors if error is not None and error <= limit]
    return "" if good else f"errors {errors}, torch's {plain}; {config}."
