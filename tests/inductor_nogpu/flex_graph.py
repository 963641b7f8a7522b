"""A graph of one call of FlexAttention, made by hand: Dynamo and autograd want a device for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from diode_engine.inductor.torch_internals import versions

BLOCK = 128  # rows and columns of a block of the mask, as create_block_mask has it by default
DENSE_BLOCK = 1 << 30  # flex_attention's for a call without a mask
WINDOW_LENGTH = 1024
EXAMPLES = {"batch": 3, "blocks": 37}  # hints of the symbols

Shape = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True)
class Call:
    """A call of FlexAttention. Without a length, batch and length are symbols."""

    kind: str = "forward"
    mask: str = "causal"
    head: int = 64  # elements of a head
    dtype: str = "bfloat16"
    heads: int = 16
    kv_heads: int = 16
    batch: int = 2
    length: int | None = 2048


def shapes(call: Call, batch: Any, length: Any, blocks: Any) -> dict[str, Shape]:
    """The tensors of a call; its output (`out`) is the last. Sizes may be symbols. `blocks` is the
    number of the mask's blocks in a row."""
    dtype = getattr(torch, call.dtype)
    queries = 1 if call.kind == "decoding" else length
    found: dict[str, Shape] = {
        "query": ((batch, call.heads, queries, call.head), dtype),
        "key": ((batch, call.kv_heads, length, call.head), dtype),
        "value": ((batch, call.kv_heads, length, call.head), dtype),
    }
    if call.kind == "backward":
        found["attended"] = found["grad_out"] = found["query"]
        found["logsumexp"] = ((batch, call.heads, length), torch.float32)
    lists = ("kv", "q") if call.kind == "backward" else ("kv",)
    whole = [f"full_{side}" for side in lists if call.mask != "dense"]
    for side in [*lists, *whole]:
        found[f"{side}_num_blocks"] = ((1, 1, blocks), torch.int32)
        found[f"{side}_indices"] = ((1, 1, blocks, blocks), torch.int32)
    if call.mask == "document":
        found["documents"] = ((length,), torch.int32)
    return found


def program(call: Call, shape_env: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor], Any]:
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
        if call.length is None:
            batch, blocks = symbol("batch"), symbol("blocks")
            length = BLOCK * blocks
        else:
            batch, length, blocks = call.batch, call.length, call.length // BLOCK
        rows = 1 if call.mask == "dense" else blocks
        inputs = {
            name: torch.empty(size, dtype=dtype, device="cuda")
            for name, (size, dtype) in shapes(call, batch, length, rows).items()
        }
        score = torch.empty((), dtype=getattr(torch, call.dtype), device="cuda")
        index = [torch.empty((), dtype=torch.int32, device="cuda") for _ in "bhmn"]
        captured = [inputs[name] for name in ("documents",) if name in inputs]
        mask = make_fx(mask_of(call.mask))(*index, *captured)
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
        "WRITE_DQ": True, "OUTPUT_LOGSUMEXP": False, "OUTPUT_MAX": False, "BACKEND": "AUTO",
    }  # fmt: skip
    block = DENSE_BLOCK if call.mask == "dense" else BLOCK
    # From torch 2.13 on, in what order a gradient is written may be told.
    orders = [None] * (4 if versions.at_least("2.13") else 0)
    around = (1, 1, *lists, *orders, block, block, graph.get_attr("mask"))
    scale = call.head**-0.5
    captured_nodes = tuple(nodes[name] for name in ("documents",) if name in nodes)
    tensors = [nodes["query"], nodes["key"], nodes["value"]]
    score_graph = graph.get_attr("score")
    if call.kind == "backward":
        node = graph.call_function(
            flex_attention_backward,
            (
                *tensors, nodes["attended"], nodes["logsumexp"], nodes["grad_out"], None,
                score_graph, graph.get_attr("joint"), around, scale, options, (), captured_nodes,
            ),
        )  # fmt: skip
    else:
        node = graph.call_function(
            flex_attention, (*tensors, score_graph, around, scale, options, (), captured_nodes)
        )
    graph.output((node,))
    return torch.fx.GraphModule(root, graph), list(inputs.values()), mode


def mask_of(mask: str) -> Any:
    at = torch.ops.aten.index.Tensor  # as flex_attention's tracing writes ids[m]

    def dense(b: Any, h: Any, m: Any, n: Any) -> Any:
        return torch.full((), True, dtype=torch.bool, device=b.device)

    def causal(b: Any, h: Any, m: Any, n: Any) -> Any:
        return m >= n

    def window(b: Any, h: Any, m: Any, n: Any) -> Any:
        return (m >= n) & (m - n < WINDOW_LENGTH)

    def document(b: Any, h: Any, m: Any, n: Any, ids: Any) -> Any:
        return (m >= n) & (at(ids, [m]) == at(ids, [n]))

    return {"dense": dense, "window": window, "document": document}.get(mask, causal)
