"""Random products are lowered with Diode as without it: where stock Inductor generates a program
Diode does, what Diode raises stock raises too, and each kernel that was chosen fits.

A part of them runs here; `pytest tests/inductor_nogpu/test_random_products.py --tries 2000` runs
as many as are wanted (`make soak` does).
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch._inductor.scheduler import Scheduler

import diode_engine
from diode_engine.choosing.stats import profile_predictions
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.resources import fits
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import Rule, install

SIZES = (1, 2, 3, 7, 13, 16, 31, 64, 77, 127, 128, 251, 256, 509, 512, 1000, 1024, 4096, 8191)
HUGE = (1 << 16, (1 << 16) + 1, 70_001, 1 << 20, 1 << 24, (1 << 31) + 8)
USUAL = (torch.bfloat16, torch.float16, torch.float32)
UNUSUAL = (
    torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64,
    torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip


def chance(*of: Any) -> float:
    """Return what has nothing to do with the kernel, so that any of them may be chosen; of some it
    knows nothing."""
    drawn = int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:4], "big")
    return float("nan") if drawn % 16 == 0 else 1.0 + drawn / 2**32


def milliseconds(candidate: Candidate) -> float:
    known = chance("timed", candidate)
    return 1.5 if np.isnan(known) else known


@dataclass(frozen=True)
class Way:
    """How Diode is used."""

    install: Callable[[], Any]
    mode: str
    options: Mapping[str, Any] = field(default_factory=dict)


def by_import() -> None:
    """As `import diode_engine` has it: the shipped model, and its best alone."""
    assert diode_engine.install_diode_choices(top_k_configs=1)


def any_kernel() -> None:
    install(Rule(chance))


def three_of_any() -> None:
    assert diode_engine.install_diode_choices(predictor=Rule(chance), performance_threshold=1e9)


AUTOTUNE = "max-autotune-no-cudagraphs"
EPILOGUES = {"benchmark_epilogue_fusion": True}  # Inductor's default, which `lowering` turns off
WAYS = {
    "import": (Way(by_import, AUTOTUNE), Way(any_kernel, AUTOTUNE)),
    "fast_autotune": (
        Way(any_kernel, "default", {"fast_autotune": True}),
        Way(by_import, "default", {"fast_autotune": True}),
    ),
    "install": (Way(three_of_any, AUTOTUNE),),
    "confidence": (Way(by_import, AUTOTUNE, {"diode_confidence_threshold": 0.9}),),
}


def ways(number: int) -> dict[str, Way]:
    """How Diode is used for this product: half of them with the shipped model alone."""
    return {name: kinds[number % len(kinds)] for name, kinds in WAYS.items()}


@dataclass(frozen=True)
class Product:
    """A program around a product, made from its number alone."""

    number: int

    def build(self) -> tuple[Callable[..., Any], Sequence[torch.Tensor]]:
        return _Draw(self.number).program()

    @property
    def dynamic(self) -> bool | None:
        return (None, None, True)[self.number % 3]


class _Draw:
    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        pick = self.random.random()
        usual = self.random.choice(USUAL)
        self.dtype = usual if pick < 0.75 else self.random.choice(UNUSUAL)
        self.other = self.dtype if pick < 0.97 else self.random.choice((*USUAL, *UNUSUAL))
        self.huge = self.random.random() < 0.08
        self.marks: list[tuple[torch.Tensor, int]] = []

    def size(self) -> int:
        if self.huge and self.random.random() < 0.4:
            return self.random.choice(HUGE)
        return 0 if self.random.random() < 0.015 else self.random.choice(SIZES)

    def tensor(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Of this shape, its strides as programs and views make them."""
        dtype = dtype or self.dtype
        how = self.random.choice(
            ("contiguous",) * 4 + ("transposed",) * 3 + ("gap", "both", "expanded", "zeros", "odd")
        )
        sizes = [max(1, size) for size in shape]
        order = list(range(len(shape)))
        if how == "transposed":
            order[-2:] = order[-2:][::-1]
        strides, step = [0] * len(shape), 1
        for dim in reversed(order):
            strides[dim] = step
            step *= sizes[dim]
            if how == "gap":
                step += 8
            elif how == "odd":
                step += 3
        if how == "both":
            strides = [2 * stride for stride in strides]
        elif how == "expanded":
            strides[self.random.randrange(len(shape))] = 0
        elif how == "zeros":
            strides = [0] * len(shape)
        tensor = torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
        if self.random.random() < 0.1:
            self.marks.append((tensor, self.random.randrange(len(shape))))
        return tensor

    def produced(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """What a program does with an operand before it is multiplied."""
        floating = self.dtype.is_floating_point and self.dtype.itemsize > 1
        if not floating:
            return lambda x: x
        return self.random.choice(
            (
                *[lambda x: x] * 4,
                lambda x: x * 2,
                lambda x: (x.mT.contiguous() + 1).mT,
                lambda x: torch.relu(x) + x,
                lambda x: x[..., 1:, :] if x.shape[-2] > 1 else x,  # an offset
                lambda x: x.narrow(-1, 0, x.shape[-1]),
                lambda x: x.flip(-1),
            )
        )

    def after(self) -> Callable[[torch.Tensor], Any]:
        """What follows the product."""
        return self.random.choice(
            (
                *[lambda y: y] * 3,
                torch.relu,
                lambda y: torch.nn.functional.gelu(y) if y.is_floating_point() else y,
                lambda y: (y, y * 2),
                lambda y: torch.cat([y, y * 3]),
                lambda y: y.mT.contiguous(),
                lambda y: y.reshape(-1)[::2],
                lambda y: y.to(torch.float32).sum(-1),
                lambda y: y.to(torch.float16) + 1,
            )
        )

    def bias(self, *shape: int) -> torch.Tensor:
        *batch, m, n = shape
        of = self.random.choice(((n,), (1, n), (m, 1), (m, n), (1,), (), (*batch, m, n)))
        if len(of) < 2:
            return torch.empty(of, dtype=self.dtype, device="cuda")
        return self.tensor(*of)

    def scale(self) -> dict[str, Any]:
        if self.random.random() < 0.6:
            return {}
        return {
            name: self.random.choice((0, 1, 2, -1, 0.5) if self.dtype.is_floating_point else (0, 3))
            for name in ("alpha", "beta")
        }

    def program(self) -> tuple[Callable[..., Any], Sequence[torch.Tensor]]:
        kinds = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "out_dtype", "chain",
                 "int_mm", "scaled_mm", "mm_plus_mm", "sized")  # fmt: skip
        weights = (8, 6, 6, 4, 4, 2, 2, 2, 1, 1, 1, 2)
        kind = self.random.choices(kinds, weights)[0]
        function, args = getattr(self, f"_{kind}")(self.size(), self.size(), self.size())
        for tensor, dim in self.marks:
            if tensor.shape[dim] > 1 and tensor.numel() and kind != "sized":
                bounds = self.random.choice(({}, {"min": 2, "max": 1 << 32}))
                torch._dynamo.maybe_mark_dynamic(tensor, dim)
                if bounds and self.random.random() < 0.5:
                    torch._dynamo.mark_dynamic(tensor, dim, **bounds)
        after = self.after()
        return (lambda *given: after(function(*given))), args

    def _mm(self, m: int, n: int, k: int) -> Any:
        f, g = self.produced(), self.produced()
        return (lambda a, b: f(a) @ g(b)), (self.tensor(m, k), self.tensor(k, n, dtype=self.other))

    def _addmm(self, m: int, n: int, k: int) -> Any:
        scale = self.scale()
        args = self.bias(m, n), self.tensor(m, k), self.tensor(k, n, dtype=self.other)
        return (lambda c, a, b: torch.addmm(c, a, b, **scale)), args

    def _bmm(self, m: int, n: int, k: int) -> Any:
        batch, f = self.random.choice((0, 1, 3, 16, 512)), self.produced()
        return (lambda a, b: torch.bmm(f(a), b)), (
            self.tensor(batch, m, k), self.tensor(batch, k, n, dtype=self.other)
        )  # fmt: skip

    def _baddbmm(self, m: int, n: int, k: int) -> Any:
        batch, scale = self.random.choice((0, 1, 3, 16)), self.scale()
        args = self.bias(batch, m, n), self.tensor(batch, m, k), self.tensor(batch, k, n)
        return (lambda c, a, b: torch.baddbmm(c, a, b, **scale)), args

    def _linear(self, m: int, n: int, k: int) -> Any:
        bias = torch.empty(n, dtype=self.dtype, device="cuda")
        given = (bias,) if self.random.random() < 0.6 else ()
        shape = self.random.choice(((m, k), (3, m, k), (k,)))
        x = (
            self.tensor(*shape)
            if len(shape) > 1
            else torch.empty(k, dtype=self.dtype, device="cuda")
        )
        return torch.nn.functional.linear, (x, self.tensor(n, k, dtype=self.other), *given)

    def _matmul(self, m: int, n: int, k: int) -> Any:
        a, b = self.random.choice(
            (((2, 3, m, k), (k, n)), ((3, m, k), (3, k, n)), ((m, k), (5, k, n)))
        )
        return torch.matmul, (self.tensor(*a), self.tensor(*b))

    def _out_dtype(self, m: int, n: int, k: int) -> Any:
        out = self.random.choice((torch.float32, torch.bfloat16))
        if self.random.random() < 0.5:
            return (lambda a, b: torch.mm(a, b, out_dtype=out)), (
                self.tensor(m, k),
                self.tensor(k, n),
            )
        args = self.tensor(4, m, k), self.tensor(4, k, n)
        return (lambda a, b: torch.bmm(a, b, out_dtype=out)), args

    def _chain(self, m: int, n: int, k: int) -> Any:
        f = self.produced()
        args = self.tensor(m, k), self.tensor(k, n), self.tensor(n, m)
        return (lambda a, b, c: f(a @ b) @ c), args

    def _int_mm(self, m: int, n: int, k: int) -> Any:
        args = self.tensor(m, k, dtype=torch.int8), self.tensor(k, n, dtype=torch.int8)
        return torch._int_mm, args

    def _scaled_mm(self, m: int, n: int, k: int) -> Any:
        eight = torch.float8_e4m3fn
        m, n, k = (16 * max(1, size // 16) for size in (m, n, k))
        one = torch.empty((), dtype=torch.float32, device="cuda")
        a = torch.empty(m, k, dtype=eight, device="cuda")
        b = torch.empty_strided((k, n), (1, k), dtype=eight, device="cuda")
        return (lambda a, b, s: torch._scaled_mm(a, b, s, s, out_dtype=torch.bfloat16)), (a, b, one)

    def _mm_plus_mm(self, m: int, n: int, k: int) -> Any:
        args = self.tensor(m, k), self.tensor(k, n), self.tensor(m, k), self.tensor(k, n)
        return (lambda a, b, c, d: a @ b + c @ d), args

    def _sized(self, m: int, n: int, k: int) -> Any:
        """Of a size that only the run knows."""
        dtype = self.dtype

        def of_some_rows(rows: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            count = rows.item()
            torch._check(count >= 0)
            return torch.ones(count, k, dtype=dtype, device="cuda") @ b

        return of_some_rows, (torch.empty((), dtype=torch.int64), self.tensor(k, n))


@contextlib.contextmanager
def fusions_timed() -> Iterator[None]:
    """Inductor times what it may fuse; here nothing can be."""
    with (
        mock.patch.object(Scheduler, "benchmark_fused_nodes", return_value=(1.0, "")),
        mock.patch.object(Scheduler, "benchmark_codegened_module", return_value=(1.0, "")),
    ):
        yield


def outcome(product: Product, way: Way | str) -> str:
    """ "" where a program is generated, else what is raised; by a way, or in a mode of stock's."""
    mode, options = (way, {}) if isinstance(way, str) else (way.mode, way.options)
    try:
        with fusions_timed(), torch._dynamo.config.patch(capture_scalar_outputs=True):
            lowered = lower(
                product.build, mode=mode, dynamic=product.dynamic, options={**EPILOGUES, **options},
                benchmark=milliseconds,
            )  # fmt: skip
    except Exception as error:  # noqa: BLE001  # the outcome is compared, whatever it is
        return f"{type(error).__name__}: {plain(str(error))}"
    for source in lowered.sources:
        compile(source, "the program", "exec")
    return ""


def plain(message: str) -> str:
    """An error's first lines, without addresses, paths and numbers that count up."""
    first = "\n".join(message.strip().splitlines()[:3])
    return re.sub(r"0x[0-9a-f]+|/[\w./-]+|\d+_\d+|line \d+", "…", first)


def failures(number: int) -> list[str]:
    """What is worse with Diode than without. Stock is asked where anything was raised, and for
    every fourth product: most of the time would go into its kernels. It may raise where Diode
    does not, when it renders a kernel that Diode has not chosen."""
    product, found = Product(number), []
    got: dict[str, str] = {}
    errors: dict[str, int] = {}
    for name, way in ways(number).items():
        way.install()
        with profile_predictions() as profile:
            got[name] = outcome(product, way)
        errors[name] = int(diode_engine.get_stats()["fallback_error"])
        found += [
            f"{number}, {name}: of {each.problem} {each.candidates} do not all fit"
            for each in profile.selections
            if not fits(each.problem, each.candidates, H200).all()
        ]
    diode_engine.uninstall_diode_choices()
    stock = {
        mode: outcome(product, mode)
        for mode in (AUTOTUNE, "default")
        if any(got.values()) or any(errors.values()) or number % 4 == 0
    }
    for name, way in ways(number).items():
        expected = stock.get(way.mode, "")
        if got[name] not in ("", expected):
            found.append(f"{number}, {name}: {got[name]}; stock {expected or 'lowers it'}")
        if errors[name] and not stock[AUTOTUNE]:
            found.append(f"{number}, {name}: {errors[name]} choices failed")
    return found


def test_random_products(tries):
    assert [line for number in tries for line in failures(number)] == []
