"""Kernels of FlexAttention for flex_attention.py; compiling them needs no GPU.

Inductor's own lowering is asked for a family of calls, with symbols for batch and length, so that
one kernel serves all problems of the family.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from importlib import import_module
from typing import Any

import flex_problems
import torch
from flex_problems import BACKWARD, DECODING, DENSE, DOCUMENT, WINDOW, WINDOW_LENGTH, Family

from diode_engine.inductor.lowering.binary import Binary, binary_of
from diode_engine.inductor.torch_internals import versions

_FLEX = "torch._inductor.kernel.flex"
Config = tuple[int, ...]  # the fields of Inductor's config of the kind, in their order

DEFAULT_TIER, AUTOTUNE_TIER, LIKELY_TIER, REST_TIER = range(4)
# Values by which the symbols are found again among a kernel's arguments.
EXAMPLES = {"batch": 3, "blocks": 37}


@dataclass(frozen=True)
class Kernel:
    """A compiled config. `arguments` are the names in the kernel's signature. `sizes` says which of
    "batch" and "blocks" its ks0, ks1, … are. `split` is the number of parts into which a decoding
    kernel divides the keys."""

    binary: Binary
    sizes: tuple[str, ...]
    split: int = 1


def configs(family: Family) -> dict[Config, int]:
    """Inductor's configs for a family, each with its tier: the default; those of max-autotune; of
    the exhaustive ones those that are likely to be fast; the rest."""
    from torch._inductor import config

    def asked(**options: Any) -> list[Config]:
        with config.patch(options):
            return [astuple(conf) for conf in _ask(family)]

    found = dict.fromkeys(asked(max_autotune=False), DEFAULT_TIER)
    every = {"max_autotune": True, "max_autotune_flex_search_space": "EXHAUSTIVE"}
    tiers = {
        AUTOTUNE_TIER: asked(max_autotune=True, max_autotune_flex_search_space="DEFAULT"),
        LIKELY_TIER: [c for c in asked(**every) if _likely(family, c)],
        REST_TIER: [] if family.kind == BACKWARD else asked(**every),
    }
    for tier, some in tiers.items():
        for one in some:
            found.setdefault(one, tier)
    return found


def _ask(family: Family) -> list[Any]:
    from torch._inductor.virtualized import V

    dtype = getattr(torch, family.dtype)
    ask = {
        BACKWARD: V.choices.get_flex_attention_bwd_configs,
        DECODING: V.choices.get_flex_decode_configs,
    }.get(family.kind, V.choices.get_flex_attention_fwd_configs)
    return ask(family.head, dtype, "cuda")


def _likely(family: Family, config: Config) -> bool:
    *blocks, stages, warps = config
    if family.kind == DECODING:
        return True
    if family.kind == BACKWARD:  # of 900: large blocks, as the defaults are
        return min(blocks) >= 64 and stages in (1, 3) and warps != 2 and blocks[0] == blocks[3]
    return blocks[0] >= 64 and stages <= 4 and warps != 2


class _Captured(Exception):
    """Ends the lowering when the choices are known: the rest of the graph is not needed."""


def _program(
    family: Family, shape_env: Any
) -> tuple[torch.fx.GraphModule, list[torch.Tensor], Any]:
    """A graph of one call, its fake inputs and their mode."""
    from torch._dynamo.source import ConstantSource
    from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    def symbol(name: str) -> Any:
        created = shape_env.create_symbol(
            EXAMPLES[name],
            source=ConstantSource(name),
            dynamic_dim=DimDynamic.DYNAMIC,
            constraint_dim=None,
        )
        return shape_env.create_symintnode(created, hint=EXAMPLES[name])

    mode = FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=True)
    with mode:
        if family.fixed:
            batch, length = family.fixed
            blocks: Any = length // flex_problems.BLOCK
        else:
            batch = family.batch or symbol("batch")
            blocks = symbol("blocks")
            length = flex_problems.BLOCK * blocks
        rows = 1 if family.mask == DENSE else blocks
        inputs = {
            name: torch.empty(size, dtype=dtype, device="cuda")
            for name, (size, dtype) in flex_problems.shapes(family, batch, length, rows).items()
        }
        score = torch.empty((), dtype=getattr(torch, family.dtype), device="cuda")
        index = [torch.empty((), dtype=torch.int32, device="cuda") for _ in "bhmn"]
        captured = [inputs[name] for name in ("documents",) if name in inputs]
        mask = make_fx(_mask_of(family.mask))(*index, *captured)
        root = torch.nn.Module()
        root.mask = mask
        root.score = make_fx(lambda score, b, h, m, n: score)(score, *index)
        root.joint = make_fx(lambda score, b, h, m, n, grad: [grad, None, None, None, None])(
            score, *index, score
        )
    graph = torch.fx.Graph(root)
    nodes: dict[str, Any] = {}
    for name, tensor in inputs.items():
        nodes[name] = graph.placeholder(name)
        nodes[name].meta["val"] = tensor
    lists = [
        nodes.get(f"{prefix}{side}_{what}")
        for side in ("kv", "q")
        for prefix in ("", "full_")
        for what in ("num_blocks", "indices")
    ]
    options = {
        "PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False,
        "WRITE_DQ": True, "OUTPUT_LOGSUMEXP": False, "OUTPUT_MAX": False,
        # Inductor does not see it where the length is a symbol.
        "IS_DIVISIBLE": family.kind != DECODING,
    }  # fmt: skip
    block = family.block
    # From torch 2.13 on, in what order a gradient is written may be told.
    orders = [None] * (4 if versions.at_least("2.13") else 0)
    around = (1, 1, *lists, *orders, block, block, graph.get_attr("mask"))
    scale = family.head**-0.5
    captured_nodes = tuple(nodes[name] for name in ("documents",) if name in nodes)
    tensors = [nodes["query"], nodes["key"], nodes["value"]]
    score_graph = graph.get_attr("score")
    if family.kind == BACKWARD:
        call = graph.call_function(
            flex_attention_backward,
            (
                *tensors, nodes["attended"], nodes["logsumexp"], nodes["grad_out"], None,
                score_graph, graph.get_attr("joint"), around, scale, options, (), captured_nodes,
            ),
        )  # fmt: skip
    else:
        call = graph.call_function(
            flex_attention,
            (*tensors, score_graph, around, scale, options, (), captured_nodes),
        )
    graph.output((call,))
    return torch.fx.GraphModule(root, graph), list(inputs.values()), mode


def _mask_of(mask: str) -> Any:
    at = torch.ops.aten.index.Tensor  # as flex_attention's tracing writes ids[m]

    def dense(b: Any, h: Any, m: Any, n: Any) -> Any:
        return torch.full((), True, dtype=torch.bool, device=b.device)

    def causal(b: Any, h: Any, m: Any, n: Any) -> Any:
        return m >= n

    def window(b: Any, h: Any, m: Any, n: Any) -> Any:
        return (m >= n) & (m - n < WINDOW_LENGTH)

    def document(b: Any, h: Any, m: Any, n: Any, ids: Any) -> Any:
        return (m >= n) & (at(ids, [m]) == at(ids, [n]))

    return {DENSE: dense, WINDOW: window, DOCUMENT: document}.get(mask, causal)


@contextlib.contextmanager
def choices_of(family: Family, wanted: Sequence[Config]) -> Iterator[dict[Config, Any]]:
    """Inductor's choices for these configs, by config, without those that it refuses. They can be
    compiled while the context is open."""
    from torch._inductor import config
    from torch._inductor.choices import InductorChoices
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from diode_engine.inductor.patches import patch_attribute

    with config.patch(max_autotune=False):
        made = type(_ask(family)[0])

    class Wanted(InductorChoices):
        def _wanted(self, *_: Any) -> list[Any]:
            return [made(*one) for one in wanted]

        get_flex_attention_fwd_configs = _wanted
        get_flex_attention_bwd_configs = _wanted
        get_flex_decode_configs = _wanted

    found: list[Any] = []

    def capture(_: str, choices: list[Any], *__: Any, **___: Any) -> None:
        found.extend(choices)
        raise _Captured

    shape_env = ShapeEnv()
    graph, inputs, mode = _program(family, shape_env)
    lowering = GraphLowering(graph, inputs, shape_env=shape_env)
    attention, decoding = (
        import_module(f"{_FLEX}.flex_{each}") for each in ("attention", "decoding")
    )
    with (
        V.set_graph_handler(lowering), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()),
        V.set_choices_handler(Wanted()),
        patch_attribute(attention, "autotune_select_algorithm", capture),
        patch_attribute(decoding, "autotune_select_algorithm", capture),
    ):  # fmt: skip
        try:
            lowering.run(*inputs)
        except Exception:
            if not found:
                raise
        # Inductor renders them in their order and may decline some.
        left = list(wanted)
        by_config: dict[Config, Any] = {}
        for choice in found:
            while left and not _is_of(choice, left[0]):
                left.pop(0)
            if left:
                by_config[left.pop(0)] = choice
        yield by_config


def _is_of(choice: Any, config: Config) -> bool:
    *blocks, stages, warps = config
    names = {1: ("BLOCK_N",), 2: ("BLOCK_M", "BLOCK_N")}.get(
        len(blocks), ("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2")
    )
    said = f"{choice.description}, "
    expected = {**dict(zip(names, blocks, strict=True)), "num_stages": stages, "num_warps": warps}
    return all(f"{name}={value}, " in said for name, value in expected.items())


def compiled(family: Family, wanted: Sequence[Config]) -> dict[Config, Kernel | str]:
    """Each config's kernel, or why there is none, for the GPU that is there or pretended."""
    from torch._inductor import config as inductor

    results: dict[Config, Kernel | str] = dict.fromkeys(wanted, "Inductor declines it")
    # Triton's own launcher keeps what was compiled; Inductor's in C++ does not.
    off = dict.fromkeys(versions.static_launchers(inductor), False)
    try:
        with inductor.patch(off), choices_of(family, wanted) as choices:
            for config, choice in choices.items():
                try:
                    results[config] = _compile(choice)
                except Exception as error:  # noqa: BLE001  # whatever a compiler does is a result
                    results[config] = f"{type(error).__name__}: {error}"[:300]
    except Exception as error:  # noqa: BLE001  # Inductor may refuse in any way
        return dict.fromkeys(wanted, f"{type(error).__name__}: {error}"[:300])
    return results


def _compile(choice: Any) -> Kernel:
    from torch._inductor.codecache import PyCodeCache

    request = choice.bmreq
    module = PyCodeCache.load_by_key_path(request.module_cache_key, request.module_path)
    autotuner = getattr(module, request.kernel_name)
    autotuner.precompile(warm_cache_only=True)
    names = tuple(autotuner.fn.arg_names)
    by_example = {value: name for name, value in EXAMPLES.items()}
    extra = [*request.extra_args]
    count = sum(name.startswith("ks") for name in names)
    return Kernel(
        binary_of(autotuner.compile_results[0].kernel, names),
        tuple(by_example[int(value)] for value in extra[:count]),
        split=int(extra[-1]),  # of the grid, which follows; a decoding kernel's third
    )
