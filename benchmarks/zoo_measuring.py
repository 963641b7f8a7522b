"""Measures a model of the zoo in every way, on a GPU, in one process."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from processes import Row
from replays import ROUNDS, Replay, graph_of, in_turn
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.utils import fresh_cache
from zoo_models import Model
from zoo_report import MIN_SHARE, over_plain
from zoo_ways import DIODE, WAYS, Way

import diode_engine
from diode_engine.inductor.patches import patch_attribute

DEVICE = "cuda"
WAY_SECONDS = 0.4  # of timing
AGAIN_ROUNDS = 25
INPUT_BYTES = 64 << 20  # inputs up to this size have SETS sets, which take turns
SETS = 4
COLD_BYTES, MOST_SETS = 512e6, 8192  # of the sets together, where inputs are not to be in the cache
ALMOST_NOTHING = 1e-3  # times the largest output; of outputs below it errors are not compared

Step = Callable[..., tuple[torch.Tensor | None, ...]]  # None: a parameter without gradient


@dataclass
class Compiled:
    """A way's compiled step: its figures, what replays it, and whether that is a CUDA graph."""

    row: Row
    replay: Replay
    graph: bool


@dataclass
class Bench:
    """A model on the GPU, with several sets of inputs, and the result that its step should have."""

    model: Model
    net: torch.nn.Module
    sets: list[tuple[torch.Tensor, ...]]
    reference: list[torch.Tensor | None] | None = None
    why_none: str = ""
    kept: list[Any] = field(default_factory=list)


class Gpu:
    """A lock on the GPU for the processes that share it: many compile, one times."""

    def __init__(self) -> None:
        self._path = os.environ.get("ZOO_LOCK")

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        with self._held(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._held(fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _held(self, kind: int) -> Iterator[None]:
        if self._path is None:
            yield
            return
        # Processes get the lock in the order in which they come. Without the gate, one that wants
        # to be alone would wait as long as others keep coming to share it.
        with Path(self._path + ".gate").open("w") as gate, Path(self._path).open("w") as lock:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(lock, kind)
            fcntl.flock(gate, fcntl.LOCK_UN)
            try:
                yield
            finally:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()


def measure(model: Model, ways: Sequence[str], write: Callable[[Row], None]) -> None:
    """Writes a row for each way. DEFAULT, which takes long, is compiled after the rows of the other
    ways are written. Plain's second compile is `again`, the first that is made: its compile time
    does not count, because it also pays for imports and compile workers. One of Diode's ways that
    is slower than the slower of plain's two is compiled a second time."""
    gpu = Gpu()
    done: dict[str, Compiled] = {}

    def compile_way(name: str, way: str) -> bool:
        # Without the lock: a compile keeps the GPU for milliseconds, and what is timed meanwhile is
        # compared round by round.
        try:
            done[name] = compiled(bench, WAYS[way])
        except Exception as error:  # noqa: BLE001  # the other ways are worth having
            failed = f"{type(error).__name__}: {error}"[:2000]
            write(_head(bench, name) | {"error": failed})
            torch.cuda.synchronize()  # raises where the device is lost
        return name in done

    with kept_alive() as kept:
        with gpu.shared():
            torch.set_float32_matmul_precision("high" if model.tf32 else "highest")
            bench = make_bench(model)
            warm_up([WAYS["import"]])
        compile_way("again", "again")
        first = ["plain", "again", *(w for w in ways if w not in ("plain", "again", "DEFAULT"))]
        for some in (first, [w for w in ways if w == "DEFAULT"]):
            some = [name for name in some if name == "again" or compile_way(name, name)]
            here = {n: c for n, c in done.items() if n in some or n in ("plain", "again")}
            if any(n in some for n in here):
                with gpu.alone():
                    rows = timed(here)
                slow = [n for n in some if n in DIODE and over_plain(rows[n]) > MIN_SHARE]
                seconds = [n for n in slow if compile_way(f"{n} again", n)]
                if seconds:
                    with gpu.alone():
                        others = timed(here | {f"{n} again": done[f"{n} again"] for n in seconds})
                    for name in seconds:
                        rows[name]["second_ratio"] = over_plain(others[f"{name} again"])
                for name in some:
                    if name in rows:
                        write(_head(bench, name) | rows[name])
        kept.clear()


def warm_up(ways: Sequence[Way]) -> None:
    """A small compile in each way that is not counted: it pays for imports and the start of the
    compile workers."""

    def small(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.mm(a, b))

    operands = tuple(torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in "ab")
    for way in ways:
        torch._dynamo.reset()
        with way.installed(), fresh_cache(), torch.no_grad():
            call = torch.compile(small, options=way.options or None)
            in_turn({"": graph_of(call, [operands])}, ROUNDS, 0.1)


def _head(bench: Bench, way: str) -> Row:
    model = bench.model
    return {
        "way": way, "group": model.group, "kind": model.kind, "torch": str(torch.__version__),
        "triton": triton.__version__, "device": torch.cuda.get_device_name(), "error": "",
        "no_reference": bench.why_none,
    }  # fmt: skip


def make_bench(model: Model) -> Bench:
    """The model on the GPU, and the result of its step in float64."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        net, args = model.make()
    bench = Bench(model, net, [args])
    size = sum(x.nbytes for x in args)
    count = SETS if size <= INPUT_BYTES else 1
    if model.cold:
        count = max(2, min(MOST_SETS, int(COLD_BYTES / size) + 1))
    for _ in range(count - 1):
        bench.sets.append(tuple(_other(x) for x in args))
    try:
        exact = copy.deepcopy(net).double()
        given = [x.double() if x.is_floating_point() else x for x in args]
        with _grad(model):
            bench.reference = list(step_of(model, exact, exact)(*given))
    except Exception as error:  # noqa: BLE001  # an operator without float64
        bench.why_none = f"{type(error).__name__}: {error}"[:300]
    torch.cuda.empty_cache()
    return bench


def _other(x: torch.Tensor) -> torch.Tensor:
    """Another input of the same kind."""
    if x.is_floating_point():  # with the same strides
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).normal_()
    return x.flatten()[torch.randperm(x.numel(), device=x.device)].view_as(x)


def _grad(model: Model) -> Any:
    return contextlib.nullcontext() if model.train else torch.no_grad()


def step_of(model: Model, net: torch.nn.Module, call: Callable[..., Any]) -> Step:
    """A step by `call`, which is the net or what it was compiled to. Its result is the outputs, or
    the loss and the gradients of all parameters."""
    if not model.train:

        def forward(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
            out = call(*args)
            return out if isinstance(out, tuple) else (out,)

        return forward
    parameters = [p for p in net.parameters() if p.requires_grad]

    def both(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = call(*args)
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        return (loss.detach(), *grads)

    return both


def compiled(bench: Bench, way: Way) -> Compiled:
    """Compiles the step with cold caches, runs it, and captures it in a CUDA graph."""
    model = bench.model
    torch._dynamo.reset()
    with (
        way.installed(),
        fresh_cache(),
        _grad(model),
        diode_engine.profile_predictions() as profile,
    ):
        before_stats = diode_engine.get_stats()
        call = torch.compile(bench.net, options=way.options or None, dynamic=model.dynamic or None)
        step = step_of(model, bench.net, call)
        args = bench.sets[0]
        before = _memory()
        start = time.perf_counter()
        outs = step(*args)
        torch.cuda.synchronize()
        row: Row = {
            "compile_s": time.perf_counter() - start,
            "compile_bytes": torch.cuda.max_memory_allocated() - before,
            "output_error": _error(outs, bench.reference),
        }
        del outs
        before = _memory()
        step(*args)
        torch.cuda.synchronize()
        row["step_bytes"] = torch.cuda.max_memory_allocated() - before
        row["products"] = products(profile.selections)
        after = diode_engine.get_stats()
        row["stats"] = {k: v for k, v in after.items() if v and v != before_stats.get(k)}
        try:
            return Compiled(row, graph_of(step, bench.sets), graph=True)
        except Exception as error:  # noqa: BLE001  # a step that talks to the host
            torch.cuda.synchronize()
            row["no_graph"] = f"{type(error).__name__}: {error}"[:300]

            def launch() -> None:
                with _grad(model):
                    step(*args)

            return Compiled(row, Replay(launch), graph=False)


def _memory() -> int:
    """Bytes in use; it also resets the peak."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def timed(ways: dict[str, Compiled]) -> dict[str, Row]:
    """Each way's row with its step time, and its ratios to plain's, and to the slower of plain's
    two compiles, in the same rounds. All ways are run in turn. Where a way is slower than that, all
    ways are measured again."""
    replays = {name: way.replay for name, way in ways.items()}
    first = in_turn(replays, ROUNDS, WAY_SECONDS)
    again = None
    if "plain" in ways and any(
        statistics.median(_ratios(first, name, _slower(first))) > MIN_SHARE
        for name in ways
        if name in DIODE
    ):
        again = in_turn(replays, AGAIN_ROUNDS, 2 * WAY_SECONDS)
    plain = ways["plain"].row if "plain" in ways else None
    rows = {}
    for name, way in ways.items():
        us = again or first
        row = way.row | {
            "timing": "graph" if way.graph else "events",
            "step_us": statistics.median(us[name]),
            "spread": max(us[name]) / min(us[name]) - 1,
            "rounds": len(us[name]),
        }
        if plain is not None:
            row |= {
                "ratio": statistics.median(_ratios(us, name, "plain")),
                "slower_plain_ratio": statistics.median(_ratios(us, name, _slower(us))),
                "compile_ratio": _ratio(row["compile_s"], plain["compile_s"]),
                "error_ratio": _ratio(row["output_error"], plain["output_error"]),
                "step_bytes_ratio": _ratio(row["step_bytes"], plain["step_bytes"]),
                "compile_bytes_ratio": _ratio(row["compile_bytes"], plain["compile_bytes"]),
                "plain_us": statistics.median(us["plain"]),
            }
            if again is not None:
                row["first_ratio"] = statistics.median(_ratios(first, name, "plain"))
            if name == "again":
                row["compile_ratio"] = None
        rows[name] = row
    return rows


def _slower(us: dict[str, list[float]]) -> str:
    """Which of plain's compiles is the slower one."""
    return max((n for n in ("plain", "again") if n in us), key=lambda n: statistics.median(us[n]))


def _ratios(us: dict[str, list[float]], name: str, other: str) -> list[float]:
    """The way's time divided by the other's, round by round."""
    return [a / b for a, b in zip(us[name], us[other], strict=True)]


def _ratio(a: float | None, b: float | None) -> float | None:
    if a is None or b is None:
        return None
    return 1.0 if a == b else a / b if b else None


def _error(
    outs: Sequence[torch.Tensor | None], exact: Sequence[torch.Tensor | None] | None
) -> float | None:
    """The mean over the outputs of the relative error in the Euclidean norm; None without a
    reference."""
    if exact is None:
        return None
    both = [
        (out.detach().double(), x)
        for out, x in zip(outs, exact, strict=True)
        if out is not None and x is not None
    ]
    sizes = [_rms(x) for _, x in both]
    least = ALMOST_NOTHING * max(sizes)
    found = [
        _rms(out - x) / size for (out, x), size in zip(both, sizes, strict=True) if size > least
    ]
    return statistics.fmean(found) if found else None


def _rms(x: torch.Tensor) -> float:
    return float(x.square().mean().sqrt())


def products(selections: Sequence[Any]) -> list[Row]:
    """The choice for each product, with equal ones counted."""
    counted = Counter(selections and [_key(s) for s in selections])
    known = {_key(s): s for s in selections}
    return [
        {
            "count": count,
            "problem": known[key].problem.to_dict(),
            "candidates": [c.to_dict() for c in known[key].candidates],
            "predicted_us": list(known[key].predicted_us),
            "confidence": known[key].confidence,
        }
        for key, count in counted.items()
    ]


def _key(selection: Any) -> Any:
    return selection.problem, selection.candidates


@contextlib.contextmanager
def kept_alive() -> Iterator[list[Any]]:
    """Keeps compiled graphs, and the constants in them, alive after Dynamo's reset: their CUDA
    graphs are replayed when all ways are compiled."""
    kept: list[Any] = []
    ready = CompiledFxGraph.post_compile

    def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        kept.append(self)
        return ready(self, *args, **kwargs)

    with patch_attribute(CompiledFxGraph, "post_compile", post_compile):
        yield kept
