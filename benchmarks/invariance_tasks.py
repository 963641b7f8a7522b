"""The tasks of batch_invariance.py."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import triton
from invariance_kernel import fixed_linear
from processes import Row
from replays import graph_of, in_turn
from torch._inductor import config
from torch._inductor.kernel import mm_grouped
from torch.nn import functional
from zoo_measuring import Gpu
from zoo_ways import MAX_AUTOTUNE

import diode_engine
from diode_engine.choosing import proofs, summation
from diode_engine.collect.workers.driver import Driver, DriverError
from diode_engine.collect.workers.inputs import empty, made_inputs
from diode_engine.collect.workers.launch import Launch
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import detect
from diode_engine.core.problem import Problem
from diode_engine.core.resources import accumulator_registers, fits
from diode_engine.inductor.lowering import kernels as lowered
from diode_engine.inductor.lowering.binary import Binary
from diode_engine.inductor.lowering.kernel_class import KernelClass, class_of
from diode_engine.inductor.lowering.symbolic import family
from diode_engine.inductor.patches import patch_attribute
from diode_engine.inductor.torch_internals import versions
from diode_engine.problems.spaces import exhaustive_space

Task = tuple[str, Callable[[], Iterator[Row]]]
DEVICE = torch.device("cuda", 0)
ROWS = 8192
SIZES = tuple(2**i for i in range(14))  # of a batch, which are compiled and timed
PAIRS = 1000

KINDS: dict[str, dict[str, Any]] = {
    "mm bfloat16": {"b_layout": "col"},
    "mm float16": {"b_layout": "col"},
    "addmm bfloat16": {},
    "bmm bfloat16": {"B": 2},
    "mm float32 tf32": {"b_layout": "col", "allow_tf32": True},
    "scaled_mm float8_e4m3fn fast": {"fast_accum": True},
    "mm float32": {"b_layout": "col"},
    "scaled_mm float8_e4m3fn": {},
    "grouped_mm_rows bfloat16": {"b_layout": "col", "B": 8},
}
WEIGHTS = ((512, 4096), (272, 1008))  # N and K; the second K is no multiple of BLOCK_K
BATCHES = (1, 2, 5, 16, 17, 33, 64, 100, 128, 250, 512, 1000, 2048, 4096)
OF_ORDER, OF_KIND = 20, 48  # kernels
OF_GROUPS = 10  # kernels of each order for products of groups, which are compiled three times each
STATIC = (ROWS, 100)  # rows for which such a product is compiled alone, not for all together
FIRST = "mm bfloat16"  # which has twice as many
TMA_KERNELS = 12  # of a template that loads through TMA, whose order is not known
CHUNKS = 5
MOST_MULTIPLICATIONS = 2048  # of a thread for a tile: more take the compiler seconds
DATA = ("random", "large", "denormal", "cancelling")

LAYERS = {
    "Llama 3 8B, qkv": (6144, 4096), "Llama 3 8B, o": (4096, 4096),
    "Llama 3 8B, gate and up": (28672, 4096), "Llama 3 8B, down": (4096, 14336),
    "Qwen 3 8B, gate and up": (24576, 4096), "Qwen 3 8B, down": (4096, 12288),
    "Qwen 3 30B, expert, gate and up": (1536, 2048), "Qwen 3 30B, expert, down": (2048, 768),
    "Gemma 3 12B, qkv": (8192, 3840), "Gemma 3 12B, o": (3840, 4096),
    "Gemma 3 12B, gate and up": (30720, 3840), "Gemma 3 12B, down": (3840, 15360),
    "DeepSeek V3, q down": (1536, 7168), "DeepSeek V3, q up": (24576, 1536),
    "DeepSeek V3, kv down": (576, 7168), "DeepSeek V3, kv up": (32768, 512),
    "DeepSeek V3, o": (7168, 16384), "DeepSeek V3, expert, gate and up": (4096, 7168),
    "DeepSeek V3, expert, down": (7168, 2048),
    "Llama 3 8B, o with bias and SiLU": (4096, 4096),
    "Llama 3 8B, o in float32": (4096, 4096), "Llama 3 8B, o in TF32": (4096, 4096),
    "DeepSeek V3, q down in TF32": (1536, 7168),
    "Llama 3 8B, qkv in float8 by row": (6144, 4096),
    "Llama 3 8B, down in float8 by tensor": (4096, 14336),
    "Qwen 3 30B, gate and up in groups": (1536, 2048),
}  # fmt: skip
FEWER_SIZES = (1, 4, 16, 64, 512, 4096)  # of a batch of layers of other types than bfloat16
EXPERTS = 128  # of Qwen 3 30B: the groups of a layer in groups
COLD_BYTES = 160e6  # of the sets of operands together
WAY_SECONDS = 0.04  # of timing
OPTION = "diode_batch_invariant"
# As for the zoo: Inductor chooses these itself, by timings that it takes anew.
TUNED = {**MAX_AUTOTUNE, "triton.autotune_pointwise": False}


def tasks(parts: Sequence[str]) -> Iterator[Task]:
    """The tasks of the parts by name: first what proves the orders that layers rely on."""
    proof: list[Task] = [
        (f"kernels {kind} {chunk}", functools.partial(compare_kernels, kind, chunk))
        for kind in KINDS
        for chunk in range(CHUNKS)
    ]
    layers: list[Task] = [
        (f"layer {name}", functools.partial(measure_layer, name)) for name in LAYERS
    ]
    ordered = (("kernels", proof[:CHUNKS]), ("layers", layers), ("kernels", proof[CHUNKS:]))
    for part, some in ordered:
        if part in parts:
            yield from some


def where() -> Row:
    return {
        "gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__),
        "triton": triton.__version__, "arch": detect(0).arch,
    }  # fmt: skip


# Kernels


def problem_of(kind: str, rows: int, n: int, k: int) -> Problem:
    op, dtype, *_ = kind.split()
    return Problem.make(op, rows, n, k, dtype, **KINDS[kind])


def chosen_kernels(problem: Problem) -> list[tuple[Row, Candidate]]:
    """Kernels of the problem with their orders of summation, as in a row: at random, OF_ORDER of
    each order and OF_KIND in all, as many of one order as of another. What loads through TMA has
    no order."""
    hardware = detect(0)
    sizes = [problem]
    if problem.op.divided:  # few rows of a group have other kernels than many
        sizes += [dataclasses.replace(problem, M=m * problem.B) for m in (16, 64)]
    spaces = [exhaustive_space(each, str(torch.__version__)) for each in sizes]
    space = [c for c in dict.fromkeys(itertools.chain(*spaces)) if c.tile]
    orders, places = summation.orders_of(problem, space, hardware)
    of_order: dict[str, list[Candidate]] = defaultdict(list)
    ok = fits(problem, space, hardware)
    for candidate, place, launches in zip(space, places.tolist(), ok.tolist(), strict=True):
        order = str(orders[place]) if place >= 0 else candidate.template
        tile = candidate.tile or {}
        work = accumulator_registers(tile["block_m"], tile["block_n"], tile["warps"])
        if launches and not ("fma" in order and work * tile["block_k"] > MOST_MULTIPLICATIONS):
            of_order[order].append(candidate)
    more = 2 if f"{problem.op} {problem.dtype}" == FIRST else 1
    count = more * min(OF_GROUPS if problem.op.divided else OF_ORDER, OF_KIND // len(orders))
    draw = random.Random(0)
    fields = {str(order): dataclasses.asdict(order) for order in orders}
    return [
        ({"order": order, "fields": fields.get(order)}, candidate)
        for order, some in sorted(of_order.items())
        for candidate in draw.sample(some, min(TMA_KERNELS if "tma" in order else count, len(some)))
    ]


def compile_kernel(cls: KernelClass) -> tuple[Binary, list[str]]:
    """The kernel and the instructions that multiply in its PTX, each once."""
    # What Inductor's launcher in C++ loads has no PTX.
    plain = dict.fromkeys(versions.static_launchers(config), False)
    with config.patch(plain), family(cls, DEVICE) as rendering:
        rendered = rendering.render(cls)
        binary = rendered.compile()
    ptx = rendered.autotuner.compile_results[0].kernel.asm["ptx"]
    return binary, instructions(ptx)


def instructions(ptx: str) -> list[str]:
    """The instructions that multiply matrices, or numbers where there is none, each once."""
    found = re.findall(r"\b((?:wgmma\.mma_async|mma)\.sync\.aligned\.[\w.]+)", ptx)
    return sorted({*found} or {*re.findall(r"\b(fma\.rn\.\w+)", ptx)})


def compare_kernels(kind: str, chunk: int) -> Iterator[Row]:
    """A row for each kernel of the chunk and each weight: whether its rows are the same in all
    batches, and the digest of their bits, by data. The library's call is one of them."""
    for n, k in WEIGHTS:
        whole = problem_of(kind, ROWS, n, k)
        batches = {m: problem_of(kind, m, n, k) for m in (ROWS, *BATCHES)}
        if whole.op.divided:
            yield from compare_groups(kind, chunk, batches)
            continue
        built: dict[str, tuple[Binary, list[str]]] = {}
        found: list[tuple[Row, Candidate, dict[int, KernelClass]]] = []
        for order, candidate in chosen_kernels(whole)[chunk::CHUNKS]:
            # Kernels that load through TMA compute something else of a single row.
            some = [m for m in batches if m > 1 or order["fields"]]
            classes = {m: class_of(batches[m], candidate) for m in some}
            if None in classes.values():
                continue
            try:
                for cls in classes.values():
                    if cls.key not in built:
                        built[cls.key] = compile_kernel(cls)
            except Exception as error:  # noqa: BLE001  # the other kernels are worth having
                yield {"kind": kind, "failed": str(candidate), "why": f"{error}"[:300]}
                continue
            found.append((order, candidate, classes))
        with Gpu().shared(), lowered.tf32(whole.allow_tf32):
            torch.cuda.synchronize()
            inputs = {data: operands(whole, data) for data in DATA}
            head = {"kind": kind, "size": [n, k], "batches": list(batches)}
            if chunk == 0:
                library = {"order": "library", "candidate": "library", "ptx": []}
                call = functools.partial(call_library, whole.op.function(torch, whole))
                yield head | library | compared(batches, inputs, call)
            for order, candidate, classes in found:
                ptx = sorted({each for c in classes.values() for each in built[c.key][1]})
                row = head | order | {"candidate": str(candidate), "ptx": ptx}
                try:
                    with contextlib.closing(Launches(batches, classes, built)) as run:
                        yield row | compared({m: batches[m] for m in classes}, inputs, run)
                except DriverError as error:
                    yield head | {"failed": str(candidate), "why": str(error)}


def compare_groups(kind: str, chunk: int, batches: dict[int, Problem]) -> Iterator[Row]:
    """As `compare_kernels`, for products of groups of one weight: they are compiled as programs
    that take one kernel."""
    whole = batches[ROWS]
    batches = {m: problem for m, problem in batches.items() if m > 1}  # one row has no dynamic M
    with Gpu().shared():
        inputs = {data: operands(whole, data) for data in DATA}
    head = {"kind": kind, "size": [whole.N, whole.K], "batches": list(batches)}
    if chunk == 0:
        library = {"order": "library", "candidate": "library", "ptx": []}
        call = functools.partial(call_library, torch._grouped_mm)
        yield head | library | compared(batches, inputs, call)
    for order, candidate in chosen_kernels(whole)[chunk::CHUNKS]:
        with Gpu().shared(), calls_of(candidate) as (run, chosen):
            row = head | order | {"candidate": str(candidate), "ptx": []}
            row |= compared(batches, inputs, run)
        if set(chosen()) == {candidate}:
            yield row
        else:
            yield head | {"failed": str(candidate), "why": f"it is not taken: {chosen()}"}


@dataclasses.dataclass(frozen=True)
class Only:
    """Predicts a time for one kernel alone."""

    candidate: Candidate

    @property
    def identity(self) -> str:
        return f"only {self.candidate}"

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> Any:
        return np.array([1.0 if each == self.candidate else np.nan for each in candidates])


@contextlib.contextmanager
def calls_of(
    candidate: Candidate,
) -> Iterator[tuple[Callable[..., Any], Callable[[], list[Candidate]]]]:
    """A call of products of groups by this kernel, and a function that returns which kernels were
    taken. The program is compiled for each of the rows in STATIC, and for all others together."""

    def product(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(a, b, offsets)

    programs = {m: compiled(product, TUNED, dynamic=False) for m in STATIC}
    any_rows = compiled(product, TUNED, dynamic=None)

    def run(m: int, given: dict[str, torch.Tensor], out: torch.Tensor) -> None:
        a, b, offsets = given.values()
        if m not in STATIC:
            torch._dynamo.maybe_mark_dynamic(a, 0)
        out.copy_(programs.get(m, any_rows)(a, b, offsets))

    with (
        # As for a dynamic number of rows, which has all kernels.
        patch_attribute(mm_grouped, "has_free_symbols", lambda _: True),
        diode_engine.diode_choices(predictor=Only(candidate), top_k_configs=1),
        diode_engine.profile_predictions() as profile,
    ):
        torch.compiler.reset()
        yield run, lambda: [each for choice in profile.selections for each in choice.candidates]


def call_library(
    call: Callable[..., torch.Tensor], _: int, given: dict[str, torch.Tensor], out: torch.Tensor
) -> None:
    out.copy_(call(*given.values()))


class Launches:
    """Launches a candidate's kernels on batches, by the CUDA driver."""

    def __init__(
        self, batches: dict[int, Problem], classes: dict[int, KernelClass],
        built: dict[str, tuple[Binary, list[str]]],
    ) -> None:  # fmt: skip
        self._driver = Driver(device=0)
        self._loaded = {
            key: self._driver.load(built[key][0]) for key in {c.key for c in classes.values()}
        }
        self._scratch = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
        count = torch.cuda.get_device_properties(0).multi_processor_count
        self._launches = {}
        for m, cls in classes.items():
            self._launches[m] = Launch(
                self._driver, built[cls.key][0], cls, batches[m], multiprocessors=count,
                scratch=lambda nbytes: self._scratch.data_ptr(),
            )  # fmt: skip
            self._launches[m].use(self._loaded[cls.key])

    def __call__(self, m: int, given: dict[str, torch.Tensor], out: torch.Tensor) -> None:
        place = tuple(x.data_ptr() for x in (*given.values(), out))
        self._launches[m](place, torch.cuda.current_stream().cuda_stream)

    def close(self) -> None:
        torch.cuda.synchronize()
        for loaded in self._loaded.values():
            self._driver.unload(loaded)


def compared(
    batches: dict[int, Problem], inputs: dict[str, dict[str, torch.Tensor]],
    run: Callable[[int, dict[str, torch.Tensor], torch.Tensor], Any],
) -> Row:  # fmt: skip
    """By data, whether each row has the same bits in all batches, and the digest of all rows. A
    batch has rows from anywhere, in any order, but for that of groups."""
    same: dict[str, bool] = {}
    digests: dict[str, str] = {}
    whole = batches[ROWS]
    for data, given in inputs.items():
        full = output(whole)
        run(ROWS, given, full)
        right = torch.ones((), dtype=torch.bool, device=full.device)
        for m in batches.keys() - {ROWS}:
            chosen = torch.randperm(ROWS, generator=torch.Generator().manual_seed(m))[:m]
            chosen = chosen.to(full.device)
            batch = dict(given)
            if whole.op.divided:  # of each group the rows that were chosen
                chosen = chosen.sort()[0]
                batch["offsets"] = torch.searchsorted(chosen, given["offsets"]).int()
            out = output(batches[m])
            batch["a"] = bits(given["a"]).index_select(-2, chosen).view(given["a"].dtype)
            run(m, batch, out)
            right &= (bits(out) == bits(full).index_select(-2, chosen)).all()
        same[data], digests[data] = bool(right), digest(full)
    return {"same": same, "digest": digests}


def output(problem: Problem) -> torch.Tensor:
    dtype = getattr(torch, problem.out_dtype)
    return torch.full(problem.output_size, -1, dtype=dtype, device=DEVICE)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[x.dtype.itemsize])


def digest(x: torch.Tensor) -> str:
    """64 bits that depend on all bits of the tensor."""
    flat = bits(x).flatten()
    weights = torch.arange(flat.numel(), device=x.device) * 0x5851F42D4C957F2D + 0x14057B7EF767814F
    return f"{int(((flat.long() + 40503) * (weights ^ (weights >> 29))).sum()):x}"


def operands(problem: Problem, data: str) -> dict[str, torch.Tensor]:
    """The inputs of the op by name, with data of a kind: `random` normal numbers; `large`, so that
    some sums overflow; `denormal` numbers, products and sums; `cancelling`, sums near zero of terms
    of many sizes."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    made = made_inputs(problem, DEVICE)
    shapes = problem.input_shapes()
    limits = torch.finfo(getattr(torch, problem.dtype))

    def normal(size: Sequence[int]) -> torch.Tensor:
        return torch.randn(tuple(size), generator=generator, device=DEVICE)

    def values(name: str, size: Sequence[int]) -> torch.Tensor:
        x, depth = normal(size), -1 if name == "a" else -2
        if name not in "ab" or data == "random":
            return x
        if data == "large":
            out = torch.finfo(getattr(torch, problem.out_dtype)).max
            return x * min(math.sqrt(out / (2.5 * math.sqrt(problem.K))), limits.max / 4)
        if data == "denormal":
            root = math.sqrt(limits.tiny)  # times itself, the smallest number that is not denormal
            even, odd = (limits.tiny / 4, root / 4) if name == "a" else (0.25, root / 4)
            scale = torch.tensor([even, odd], device=DEVICE).repeat(problem.K // 2)
            return x * (scale if name == "a" else scale[:, None])
        x *= torch.exp2(torch.round(3 * normal(size)).clamp(-4, 4))
        first, second = x.split(problem.K // 2, depth)
        again = first * (-1 if name == "a" else 1)
        return torch.cat([first, again + (second / 64 if name == "a" else 0)], depth)

    return {
        name: made[name] if name in made
        else empty(shape, DEVICE).copy_(values(name, shape[0]).clamp(limits.min, limits.max))
        for name, shape in shapes.items()
    }  # fmt: skip


# Layers


def take_as_proven() -> None:
    """Has the option take orders of summation whose proofs are being measured here, besides those
    that were shown."""
    hardware = detect(0)
    version = str(torch.__version__), triton.__version__
    problem = Problem.make("mm", 512, 1024, 4096, "bfloat16")
    found, _ = summation.orders_of(problem, exhaustive_space(problem), hardware)
    versions = [(each, each) for each in version]
    here = proofs.Proof(tuple(sorted(found)), hardware.arch, *versions, 0, 0, "here")
    proofs.PROOFS = (here, *proofs.PROOFS)


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, w)


def linear_with_bias_and_silu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.silu(functional.linear(x, w, w[:, 0]))


def linear_by_row(
    x: torch.Tensor, of_x: torch.Tensor, w: torch.Tensor, of_w: torch.Tensor
) -> torch.Tensor:
    """A product in float8 with a scale of each row [M, 1] and of each column [1, N]."""
    return torch._scaled_mm(x, w.t(), of_x, of_w, out_dtype=torch.bfloat16, use_fast_accum=True)


def linear_by_tensor(
    x: torch.Tensor, w: torch.Tensor, of_x: torch.Tensor, of_w: torch.Tensor
) -> torch.Tensor:
    """A product in float8 with one scale [] of each operand, added up without loss."""
    return torch._scaled_mm(x, w.t(), of_x, of_w, out_dtype=torch.bfloat16)


def of_groups(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Products of groups of rows, which end at `ends` [EXPERTS], with a weight each."""
    return torch._grouped_mm(x, w.transpose(1, 2), ends)


# By the last words of a layer's name.
PROGRAMS: dict[str, Callable[..., torch.Tensor]] = {
    "with bias and SiLU": linear_with_bias_and_silu, "float8 by row": linear_by_row,
    "float8 by tensor": linear_by_tensor, "in groups": of_groups,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer's program, and its inputs: `rows` have a row for each member of a batch, and come
    first."""

    name: str
    rows: tuple[torch.Tensor, ...]
    weights: tuple[torch.Tensor, ...]

    @classmethod
    def make(cls, name: str) -> Layer:
        """The layer of this name with random weights, and ROWS rows: of them some are large, some
        small, and some add up to almost nothing."""
        n, k = LAYERS[name]
        generator = torch.Generator(DEVICE).manual_seed(0)
        draw = functools.partial(torch.randn, device=DEVICE, generator=generator)
        kind = kind_of(name)
        x, w = draw(ROWS, k), draw(*((EXPERTS,) if kind == "groups" else ()), n, k)
        x[1::8] *= 1e3
        x[3::8] *= 1e-38
        x[5::8, k // 2 :] = -x[5::8, : k - k // 2]
        if kind == "float8 by row":
            (x, of_x), (w, of_w) = in_float8(x, dim=1), in_float8(w, dim=1)
            return cls(name, (x, of_x), (w, of_w.t().contiguous()))
        if kind == "float8 by tensor":
            (x, of_x), (w, of_w) = in_float8(x, dim=None), in_float8(w, dim=None)
            return cls(name, (x,), (w, of_x, of_w))
        dtype = torch.bfloat16 if kind in ("bfloat16", "groups") else torch.float32
        return cls(name, (x.to(dtype),), (w.to(dtype),))

    @property
    def program(self) -> Callable[..., torch.Tensor]:
        return next((each for words, each in PROGRAMS.items() if words in self.name), linear)

    @property
    def sizes(self) -> Sequence[int]:
        """Of the batches that are compiled and timed."""
        if self.in_groups:
            return FEWER_SIZES[1:]  # one row in all is refused
        return SIZES if kind_of(self.name) == "bfloat16" else FEWER_SIZES

    @property
    def in_groups(self) -> bool:
        return self.program is of_groups

    def inputs(self, chosen: torch.Tensor | slice) -> tuple[torch.Tensor, ...]:
        """The inputs of a batch of these rows. In groups they ascend: each group has as many of
        all rows, and as many of the rows of a slice, which are taken from anywhere."""
        if isinstance(chosen, slice) and self.in_groups:
            count = len(range(*chosen.indices(ROWS)))
            chosen = torch.arange(count, device=DEVICE) * ROWS // count
        if isinstance(chosen, slice):
            return *(x[chosen] for x in self.rows), *self.weights
        rows = tuple(copied(x, chosen) for x in self.rows)
        if not self.in_groups:
            return *rows, *self.weights
        ends = torch.arange(1, EXPERTS + 1, device=DEVICE) * ROWS // EXPERTS
        return *rows, *self.weights, torch.searchsorted(chosen, ends).int()


def kind_of(layer: str) -> str:
    """The type in which the layer of this name is computed."""
    return layer.partition(" in ")[2] or "bfloat16"


def copied(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """A copy of these rows. (CUDA does not index in all types.)"""
    out = torch.empty(len(rows), x.shape[1], dtype=x.dtype, device=x.device)
    torch.index_select(bits(x), 0, rows, out=bits(out))
    return out


def in_float8(x: torch.Tensor, dim: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The values in float8, and their scale: that of the whole tensor [], or along `dim`."""
    dtype = torch.float8_e4m3fn
    largest = x.abs().amax() if dim is None else x.abs().amax(dim, keepdim=True)
    limits = torch.finfo(dtype)
    scale = (largest / limits.max).clamp(torch.finfo(torch.float32).tiny)
    return (x / scale).clamp(limits.min, limits.max).to(dtype), scale


def measure_layer(name: str) -> Iterator[Row]:
    """The kernels that the layer gets, the pairs of batches with equal rows, and the times."""
    with lowered.tf32(kind_of(name) == "TF32"):
        with Gpu().shared():
            layer = Layer.make(name)
        n, k = LAYERS[name]
        head = {"layer": name, "N": n, "K": k, "dtype": kind_of(name)}
        for row in _measure(layer):
            yield head | row


def _measure(layer: Layer) -> Iterator[Row]:
    program = layer.program
    options = {"invariant": {OPTION: True}, "diode": {}}
    calls: dict[str, Callable[..., torch.Tensor]] = {"library": program}
    for way, own in options.items():
        calls[way] = compiled(program, {**TUNED, **own}, dynamic=False)
        for m in layer.sizes:
            with diode_engine.profile_predictions() as profile:
                calls[way](*layer.inputs(slice(m)))
            yield {"way": way, "M": m, "choices": [
                [str(c) for c in choice.candidates] for choice in profile.selections
            ]}  # fmt: skip
    some = layer.inputs(torch.arange(ROWS // 2 - 3, device=DEVICE))
    for x in some[: len(layer.rows)]:
        torch._dynamo.maybe_mark_dynamic(x, 0)
    calls["dynamic"] = compiled(program, {**TUNED, OPTION: True}, dynamic=None)
    with diode_engine.profile_predictions() as profile:
        calls["dynamic"](*some)
    chosen = [[str(c) for c in choice.candidates] for choice in profile.selections]
    by_rows = [[(m, str(c)) for m, c in choice.by_rows] for choice in profile.selections]
    yield {"way": "dynamic", "choices": chosen, "by_rows": by_rows}
    if kind_of(layer.name) == "bfloat16" and program is linear:
        calls["fixed"] = fixed_linear
    for way, call in calls.items():
        with Gpu().shared():
            smaller = calls["invariant"] if way == "dynamic" else call
            yield {"way": way, **compare_pairs(call, smaller, layer)}
    if program is not linear_with_bias_and_silu:
        with Gpu().alone():
            for m in layer.sizes:
                yield {"M": m, **timed(calls, layer, m)}


def compiled(
    program: Callable[..., Any], options: dict[str, Any], *, dynamic: bool | None
) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = 256
    return torch.no_grad()(torch.compile(program, options=options, dynamic=dynamic))


def compare_pairs(
    call: Callable[..., torch.Tensor], smaller: Callable[..., torch.Tensor], layer: Layer
) -> Row:
    """Computes PAIRS pairs of batches of random sizes, the smaller of which has rows of the larger
    in another order, and counts the pairs whose rows have the same bits. Where `smaller` is another
    call, the larger is of any size."""
    draw = random.Random(0)
    generator = torch.Generator(DEVICE).manual_seed(0)
    count = len(layer.rows[0])
    equal, sizes = [], []
    for _ in range(PAIRS):
        small, large = sorted(draw.choices(layer.sizes, k=2))
        if smaller is not call:
            large = min(count, large + draw.randrange(1, large + 1))
        rows = torch.randperm(count, generator=generator, device=DEVICE)[:large]
        some = torch.randperm(large, generator=generator, device=DEVICE)[:small]
        if layer.in_groups:
            rows, some = rows.sort()[0], some.sort()[0]
        of_large, of_small = call(*layer.inputs(rows)), smaller(*layer.inputs(rows[some]))
        equal.append((bits(of_large)[some] == bits(of_small)).all())
        sizes.append((small, large))
    same = torch.stack(equal).tolist()
    other = sorted({size for size, each in zip(sizes, same, strict=True) if not each})
    return {"pairs": PAIRS, "equal": sum(same), "unequal": other[:100]}


def timed(calls: dict[str, Callable[..., torch.Tensor]], layer: Layer, m: int) -> Row:
    """The microseconds of each call for a batch of m rows, with operands outside of the cache."""
    nbytes = sum(x.nbytes for x in layer.inputs(slice(m)))
    count = max(2, min(48, math.ceil(COLD_BYTES / nbytes)))
    starts = [i * m % (ROWS - m + 1) // 8 * 8 for i in range(count)]
    sets = [layer.inputs(slice(at, at + m)) for at in starts]
    own = len(layer.rows)
    sets[1:] = [(*each[:own], *(w.clone() for w in each[own:])) for each in sets[1:]]
    with torch.no_grad():
        us = in_turn({way: graph_of(call, sets) for way, call in calls.items()}, 7, WAY_SECONDS)
    return {
        "us": {way: statistics.median(each) for way, each in us.items()},
        "spread": {way: max(each) / min(each) - 1 for way, each in us.items()},
    }
