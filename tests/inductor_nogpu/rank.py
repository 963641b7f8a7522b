"""One rank of a distributed program, in a process of its own.

It runs training steps under DDP, FSDP2 and tensor parallelism, and tells the kernels in the
programs that Inductor writes or finds in its cache. The steps run on the rank's GPU with nccl where
there are GPUs. Else they run on the processor with gloo, and what Dynamo and autograd hand to
Inductor is compiled for a pretended GPU, up to these programs.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func
from torch._dynamo.utils import counters
from torch._guards import detect_fake_mode
from torch._inductor.codecache import PyCodeCache
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.select_algorithm import AlgorithmSelectorCache
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import diode_engine
from diode_engine.inductor import without_gpu

WORLD = 2
GPUS = torch.cuda.device_count()  # before one is pretended
KIND = "cuda" if GPUS else "cpu"
ROWS, WIDTH, INNER, CLASSES = 64, 768, 2048, 1000
PATIENCE = timedelta(seconds=120)
MAX_AUTOTUNE = {"max_autotune": True, "shape_padding": False, "benchmark_epilogue_fusion": False}

load_code = PyCodeCache.load_by_key_path
programs: list[str] = []  # of the graphs, in the order in which they were compiled


class Block(torch.nn.Module):
    """A product with an epilogue, and one with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, INNER)
        self.down = torch.nn.Linear(INNER, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def model() -> torch.nn.Sequential:
    layers = torch.nn.Sequential(Block(), torch.nn.Linear(WIDTH, CLASSES))
    return layers.to(KIND, torch.bfloat16)


def compile_on_gpu(graph: torch.fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
    """Compile a graph for the pretended GPU, and return what runs it on the processor."""

    def moved(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")

    theirs = copy.deepcopy(graph)
    for node in theirs.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
    with detect_fake_mode(inputs):
        compile_fx_inner(theirs, [moved(x) for x in inputs], **kwargs)
    return make_boxed_func(graph)


def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    inner = compile_fx_inner if GPUS else compile_on_gpu
    return compile_fx(graph, inputs, inner_compile=inner, config_patches=MAX_AUTOTUNE)


def ddp() -> torch.nn.Module:
    """Each bucket of gradients has a graph of its own."""
    net = torch.nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=3)
    return torch.compile(net, backend=backend)


def fsdp2() -> torch.nn.Module:
    net, mesh = model(), init_device_mesh(KIND, (WORLD,))
    for block in net:
        fully_shard(block, mesh=mesh)
        block.compile(backend=backend)
    return fully_shard(net, mesh=mesh)


def tensor_parallel() -> torch.nn.Module:
    plan = {"*.up": ColwiseParallel(), "*.down": RowwiseParallel()}
    net = parallelize_module(model(), init_device_mesh(KIND, (WORLD,)), plan)
    return torch.compile(net, backend=backend)


def compile_others() -> None:
    """Compile the steps' products before them: in another order, alone, and with a dynamic size."""
    for rows, columns in ((WIDTH, CLASSES), (INNER, WIDTH), (WIDTH, INNER)):

        def build(rows: int = rows, columns: int = columns) -> Any:
            layer = torch.nn.Linear(rows, columns, device="meta", dtype=torch.bfloat16)
            x = torch.empty(ROWS, rows, device="cuda", dtype=torch.bfloat16)
            return without_gpu.without_data(layer), (x,)

        without_gpu.lower(build, options=MAX_AUTOTUNE, dynamic=True)
        without_gpu.lower(build, options=MAX_AUTOTUNE)


def load(key: str, path: str, *args: Any, **kwargs: Any) -> Any:
    """Load code that Inductor has written or found in its cache, but of a graph's program only note
    the text."""
    source = Path(path).read_text()
    if "def call(" not in source:  # a kernel's code
        return load_code(key, path, *args, **kwargs)
    programs.append(source)
    if GPUS:
        return load_code(key, path, *args, **kwargs)
    return SimpleNamespace(call=None, runner=None, __file__=path)


def kernels(program: str) -> list[str]:
    """The kernels that a program calls, in order, and the configs of Triton's templates."""
    calls = re.findall(r"^ +(triton_\w+)\.run\(|\b(extern_kernels\.\w+)\(", program, re.MULTILINE)
    configs = re.findall(r"num_stages=\d+,\s+num_warps=\d+|BLOCK_[MNK] : .*=.*", program)
    return [*("".join(call) for call in calls), *configs]


def main() -> None:
    asked = json.load(sys.stdin)
    if GPUS:
        torch.cuda.set_device(asked["rank"])
    else:
        without_gpu.pretend()
        AlgorithmSelectorCache.make_precompile_fn = lambda *_, **__: dict
    dist.init_process_group(
        "nccl" if GPUS else "gloo", init_method=f"file://{asked['meeting']}", rank=asked["rank"],
        world_size=WORLD, timeout=PATIENCE,
    )  # fmt: skip
    if asked.get("others"):
        compile_others()
    PyCodeCache.load_by_key_path = load
    counters.clear()
    steps, losses = {}, {}
    for make in (ddp, fsdp2, tensor_parallel):
        torch._dynamo.reset()
        programs.clear()
        torch.default_generator.manual_seed(asked["rank"])
        net = make()  # kept until the gradients are reduced
        loss = net(torch.randn(ROWS, WIDTH, dtype=torch.bfloat16).to(KIND)).float().square().mean()
        loss.backward()
        steps[make.__name__] = [kernels(program) for program in programs]
        losses[make.__name__] = float(loss)
    told = {
        "steps": steps,
        "losses": losses,
        "searches": counters["inductor"]["select_algorithm_autotune"],
        "hits": counters["inductor"]["fxgraph_cache_hit"],
        "misses": counters["inductor"]["fxgraph_cache_miss"],
        "fallbacks": diode_engine.get_stats()["fallbacks"],
        "differences": diode_engine.compare_ranks(),
    }
    json.dump(told, sys.stdout)
    dist.destroy_process_group()


main()
