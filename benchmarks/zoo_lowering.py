"""Lowers a model of the zoo in every way for a pretended H200, on a machine without a GPU.

Dynamo and autograd see CPU tensors without data, because a torch without CUDA has no autograd on
GPU tensors. The graphs that they make, forward and backward, are moved to the pretended GPU, and
then Inductor lowers them. So attention is a CPU kernel in these graphs, which Inductor calls as it
is, except where an H200 would compute it by products.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import triton
import without_cuda
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from processes import Row
from torch._dynamo.backends.common import aot_autograd
from torch._guards import detect_fake_mode
from torch._inductor.choices import InductorChoices
from torch._inductor.compile_fx import compile_fx
from torch._inductor.fx_passes import pad_mm
from torch._inductor.kernel import mm_grouped
from torch._inductor.scheduler import Scheduler
from torch._inductor.select_algorithm import AlgorithmSelectorCache, get_algorithm_selector_cache
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from zoo_models import Model
from zoo_ways import DIODE, WAYS

import diode_engine
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits
from diode_engine.inductor import without_gpu
from diode_engine.inductor.hook.product_notes import ProductNotes
from diode_engine.inductor.listening import capture
from diode_engine.inductor.patches import patch_attribute
from diode_engine.inductor.without_gpu.program import convert_inputs

CUDA = torch.device("cuda", 0)
# As a user has them: several choices are kept until they are benchmarked with what is fused.
_SETTINGS = {
    "benchmark_epilogue_fusion": True,
    # slicing what was padded asks a torch that was built without CUDA for a device
    "shape_padding": torch.backends.cuda.is_built(),
    "joint_graph_constant_folding": False,  # it computes constants on the device
}
# Warnings that stock max-autotune gives too: where it takes a library's kernel; after an error.
_INDUCTORS = ("Layout conflict detected", "on error, temporary cache dir")


class Graph(NamedTuple):
    """A CPU graph, and tensors without data that it can be called with."""

    module: torch.fx.GraphModule
    inputs: Sequence[Any]


def lower(model: Model, ways: Sequence[str], write: Callable[[Row], None]) -> None:
    """Writes a row for each way: its choices, warnings and errors. The first way has to be "plain";
    the other ways may have the same warnings. Raises IntegrationError where there is a GPU."""
    without_gpu.pretend(H200)
    torch.set_float32_matmul_precision("high" if model.tf32 else "highest")
    allowed: set[str] = set()
    graphs: list[Graph] = []
    for name in ways:
        start = time.perf_counter()
        row: Row = {
            "model": model.name, "way": name, "torch": str(torch.__version__),
            "triton": triton.__version__, "error": "", "problems": [], "left_out": [],
            "graphs": 0,
        }  # fmt: skip
        notes: list[dict[str, Any]] = []
        said: list[str] = []
        watched = _captured(notes) if name == "plain" else contextlib.nullcontext()
        profile = None
        try:
            with WAYS[name].installed(), watched, diode_engine.profile_predictions() as profile:
                # else Inductor has Dynamo start anew, to make a tensor of a float
                with _said(said), torch._dynamo.config.patch(specialize_float=True):
                    graphs = graphs or _traced(model)
                    row["graphs"] = len(graphs)
                    row["kernels"] = kernels(lower_graphs(graphs, WAYS[name].options))
                row["stats"] = diode_engine.get_stats()
        except Exception as error:  # noqa: BLE001  # it is what is looked for
            row["error"] = f"{type(error).__name__}: {error}"[:2000]
        if name == "plain":
            allowed = set(said)
            products = [n["product"] for n in notes if "product" in n]
            found = [Problem.from_dict(p["problem"]) for p in products if p["problem"]]
            row["problems"] = [p.to_dict() for p in dict.fromkeys(found)]
            row["left_out"] = sorted({p["name"] for p in products if not p["problem"]})
        row["warnings"] = sorted(
            text for text in set(said) - allowed if not any(own in text for own in _INDUCTORS)
        )
        chosen = profile.selections if profile is not None else []
        row["products"] = len(chosen)
        row["unfit"] = [
            f"{choice.problem}: {', '.join(map(str, choice.candidates))}"
            for choice in chosen
            if not fits(choice.problem, choice.candidates, H200).all()
        ]
        if name in DIODE and not chosen and row.get("stats", {}).get("fallbacks") == 0:
            row["nothing_chosen"] = True
        row["seconds"] = round(time.perf_counter() - start, 2)
        write(row)


def lower_graphs(graphs: Sequence[Graph], options: dict[str, Any]) -> list[str]:
    """Has Inductor lower the graphs for the pretended GPU. Returns the generated programs."""
    if not torch.backends.cuda.is_built():
        without_cuda.replace_methods()
    torch._dynamo.reset()
    with without_gpu.lowering({**_SETTINGS, **options}) as lowered, _timed(), torch.no_grad():
        for graph in graphs:
            with detect_fake_mode(graph.inputs):
                compile_fx(*_on_gpu(graph))
    return lowered.sources


def kernels(programs: Sequence[str]) -> dict[str, int]:
    """How many kernels of each kind generated programs call: Triton's by Inductor's short names
    (poi, red, per, tem), libraries' by theirs; of Triton's those that copy ("clone"); and the bytes
    of what is allocated with sizes that are known."""
    found: Counter[str] = Counter()
    for program in programs:
        for name in re.findall(r"^ +(triton_\w+)\.run\(", program, re.MULTILINE):
            kind = name.split("_")[1]
            found[kind] += 1
            found["clone"] += kind != "tem" and "_clone" in name
        found.update(re.findall(r"^ +.*\bextern_kernels\.(\w+)\(", program, re.MULTILINE))
        found.update(re.findall(r"^ +.*\btorch\.ops\.(\w+\.\w+)", program, re.MULTILINE))
        for sizes, dtype in re.findall(
            r"empty_strided_cuda\(\(([\d, ]*)\), \([^)]*\), torch\.(\w+)\)", program
        ):
            elements = math.prod(int(size) for size in sizes.split(",") if size.strip())
            found["bytes"] += elements * getattr(torch, dtype).itemsize
    return dict(found)


def _traced(model: Model) -> list[Graph]:
    """The graphs that Dynamo and autograd make of a step, forward and then backward."""
    graphs: list[Graph] = []
    grad = contextlib.nullcontext() if model.train else torch.no_grad()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, grad:
        module, args = _built(model, mode)
        noting = noting_backend(graphs)
        out = torch.compile(module, backend=noting, dynamic=model.dynamic or None)(*args)
        if model.train:
            out.backward()
    return graphs


def noting_backend(graphs: list[Graph]) -> Callable[..., Any]:
    """A backend of torch.compile that adds the graphs that Dynamo and autograd make to the list,
    and runs them as they are."""

    def note(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        graphs.append(Graph(graph, inputs))
        return make_boxed_func(graph)

    autograd = aot_autograd(fw_compiler=note, partition_fn=min_cut_rematerialization_partition)

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        for node in graph.graph.nodes:
            if getattr(node.target, "__name__", "") == "scaled_dot_product_attention":
                mask = node.kwargs.get("attn_mask")
                if isinstance(mask, torch.fx.Node) and mask.meta["example_value"].shape[-1] % 8:
                    node.target = _attention
        graph.recompile()
        return autograd(graph, convert_inputs(inputs))

    return backend


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Attention by its two products, as a GPU computes it with a mask that is not aligned."""
    return torch.ops.aten._scaled_dot_product_attention_math(
        q, k, v, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


def _built(model: Model, mode: FakeTensorMode) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The module and its inputs without data."""
    try:
        return model.make()
    except DataDependentOutputException:  # a number is computed by a tensor (timm's drop path)
        with unset_fake_temporarily():
            module, args = model.make()
        for part in module.modules():
            for name, value in part.named_parameters(recurse=False):
                fake = mode.from_tensor(value.detach())
                setattr(part, name, torch.nn.Parameter(fake, requires_grad=model.train))
            for name, buffer in part.named_buffers(recurse=False):
                setattr(part, name, mode.from_tensor(buffer))
        return module, tuple(mode.from_tensor(x) for x in args)


def _on_gpu(graph: Graph) -> tuple[torch.fx.GraphModule, list[Any]]:
    """A copy of a CPU graph, and its inputs, on the pretended GPU."""
    nodes = torch.fx.Graph()
    nodes.output(nodes.graph_copy(graph.module.graph, {}))
    moved = torch.fx.GraphModule(graph.module, nodes)
    for node in nodes.nodes:
        if node.op == "get_attr" and isinstance(getattr(moved, node.target), torch.Tensor):
            setattr(moved, node.target, _moved(getattr(moved, node.target)))
        elif node.op == "call_function" and "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": CUDA}
    moved.recompile()
    return moved, [_moved(x) for x in graph.inputs]


def _moved(x: Any) -> Any:
    """A tensor like this one on the pretended GPU, with the same sizes and strides."""
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=CUDA)


@contextlib.contextmanager
def _timed() -> Iterator[None]:
    """Makes times up with which Triton's kernels win. So whatever is benchmarked ends with a kernel
    that can be fused, the case that exercises most of a compile."""

    def times(self: Any, choices: Sequence[Any], *_: Any, **__: Any) -> dict[Any, float]:
        from torch._inductor.select_algorithm import ExternKernelCaller

        return {c: 2.0 if isinstance(c, ExternKernelCaller) else 1.0 for c in choices}

    def fused(*_: Any, **__: Any) -> tuple[float, str]:
        return 1.0, ""

    made = (None, SimpleNamespace())
    # torch 2.10 has no such step, and compiles what it benchmarks in another one below
    compiled = (
        patch_attribute(Scheduler, "compile_kernel", lambda *_, **__: made)
        if hasattr(Scheduler, "compile_kernel")
        else contextlib.nullcontext()
    )
    with (
        patch_attribute(AlgorithmSelectorCache, "benchmark", times),
        compiled,
        patch_attribute(Scheduler, "benchmark_codegened_module", fused),
        patch_attribute(Scheduler, "benchmark_fused_nodes", fused),
        # As if padding had been timed and were slower. In Diode's ways, Diode decides before that.
        patch_attribute(pad_mm, "get_cached_should_pad", lambda *_: False),
    ):
        yield


@contextlib.contextmanager
def _captured(notes: list[dict[str, Any]]) -> Iterator[None]:
    """Notes the products, as `diode-engine capture` does, and has a library compute them."""
    functions = get_algorithm_selector_cache().preprocessing_fns
    with contextlib.ExitStack() as stack:
        for place, name in (
            (InductorChoices, "_finalize_template_configs"),
            (mm_grouped, "_tuned_grouped_mm_common"),
            (mm_grouped, "early_config_prune"),
        ):  # put back later
            stack.enter_context(patch_attribute(place, name, getattr(place, name)))
        watch = ProductNotes(lambda **note: notes.append(note))
        watch.begin()
        capture.attach()
        try:
            yield
        finally:
            watch.end()
            if capture.prefer_aten in functions:
                functions.remove(capture.prefer_aten)


@contextlib.contextmanager
def _said(found: list[str]) -> Iterator[None]:
    """Collects warnings, and log records of that level, without the numbers that differ."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(_plain(f"{record.name}: {record.getMessage()}"))

    handler = Handler(logging.WARNING)
    loggers = [logging.getLogger("diode_engine"), logging.getLogger("torch")]
    for name, logger in list(logging.root.manager.loggerDict.items()):  # those of torch's own
        if name.startswith("torch.") and isinstance(logger, logging.Logger):
            loggers += [] if logger.propagate else [logger]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        found += [_plain(f"{w.category.__name__}: {w.message}") for w in caught]


def _plain(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text)[:500]
