"""Reads a call of FlexAttention from the graph that is being lowered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import sympy
from torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from diode_engine.models.flex_attention import BACKWARD, DECODING, FlexCall

# The places of the score function, the mask and the options among a call's arguments.
_SCORE, _MASK, _OPTIONS = 3, 4, 6
_SCORE_BACKWARD, _MASK_BACKWARD, _OPTIONS_BACKWARD = 7, 9, 11

# The values in kernel_options where the program gives none.
_OWN_OPTIONS = {
    "BACKEND": ("AUTO",),
    "PRESCALE_QK": (False,),
    "ROWS_GUARANTEED_SAFE": (False,),
    "BLOCKS_ARE_CONTIGUOUS": (False,),
    "WRITE_DQ": (True,),
    "OUTPUT_LOGSUMEXP": (False, True),
    "OUTPUT_MAX": (False,),
}
_BLOCK = 128  # rows and columns of a mask's block, as create_block_mask has it by default
_NO_MASK = 1 << 30  # flex_attention's own block where there is no mask


class Unmeasured(Exception):
    """No such call was measured; the message says what is different about it."""


def call_of(kind: str, node: Any) -> FlexCall:
    """Return the call at a node of the graph; a size that is a symbol counts by its hint. Raises
    Unmeasured where the call is not like those that were timed (docs/notes/flex-attention.md)."""
    backward = kind == BACKWARD
    if getattr(node, "target", None) is not (
        flex_attention_backward if backward else flex_attention
    ):
        raise Unmeasured("it is asked for outside of a call")
    args = node.args
    query, key, value = (_tensor(each) for each in args[:3])
    batch, heads, rows, head = query.shape
    if not query.dtype == key.dtype == value.dtype:
        raise Unmeasured("its operands have different types")
    if key.shape != value.shape or not _same(key.shape[0], batch) or not _same(
        key.shape[3], head
    ):  # fmt: skip
        raise Unmeasured("its values have other sizes than its keys, or another batch")
    length = key.shape[2]
    if kind == DECODING:
        if not _same(rows, 1):
            raise Unmeasured("it decodes several tokens at once")
    elif not _same(rows, length) or not _whole_blocks(length):
        raise Unmeasured(f"its queries and keys are not equally many, or no multiple of {_BLOCK}")
    _check_options(args[_OPTIONS_BACKWARD if backward else _OPTIONS])
    _check_score(args[_SCORE_BACKWARD if backward else _SCORE])
    masked = _masked(args[_MASK_BACKWARD if backward else _MASK])
    if masked and kind == DECODING:
        raise Unmeasured("it decodes with a block mask")
    read = [each for each in args[-1] if hasattr(each, "meta")]
    if len(read) > 1 or any(_tensor(each).ndim > 1 for each in read):
        # The tensors take shared memory, and some configs leave only a kilobyte or two of it.
        raise Unmeasured("its mask reads several tensors, or one of several dimensions")
    return FlexCall(
        kind, _hint(head), str(query.dtype).removeprefix("torch."), _hint(batch) * _hint(heads),
        _hint(length), masked, bool(read),
    )  # fmt: skip


def _tensor(node: Any) -> Any:
    found = getattr(node, "meta", {}).get("val")
    if found is None:
        raise Unmeasured("the graph does not say what its operands are")
    return found


def _hint(size: Any) -> int:
    """Return the value of a size; of a symbol, its hint. Raises Unmeasured where it has none."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if free_unbacked_symbols(expression):
        raise Unmeasured("nothing is known about a dynamic size")
    return int(size.node.hint)


def _same(size: Any, other: Any) -> bool:
    """Return whether two sizes are known to be the same, without a guard on symbols."""
    if isinstance(size, int) and isinstance(other, int):
        return size == other
    sizes: Any = V.graph.sizevars
    return bool(sizes.statically_known_equals(_expression(size), _expression(other)))


def _whole_blocks(length: Any) -> bool:
    sizes: Any = V.graph.sizevars
    return bool(sizes.statically_known_multiple_of(_expression(length), _BLOCK))


def _expression(size: Any) -> Any:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


def _check_options(options: Any) -> None:
    """Raise Unmeasured where the program has set options itself: they are its choice."""
    for name, value in dict(options).items():
        if value not in _OWN_OPTIONS.get(name, ()):
            raise Unmeasured(f"the program gives kernel_options ({name})")


def _check_score(node: Any) -> None:
    """Raise Unmeasured where the scores are changed."""
    module = reduce(getattr, str(node.target).split("."), node.graph.owning_module)
    nodes = list(module.graph.nodes)
    (result,) = nodes[-1].args
    first = result[0] if isinstance(result, Sequence) else result
    if nodes[0].op != "placeholder" or first is not nodes[0]:
        raise Unmeasured("its scores are changed by a score_mod")


def _masked(block_mask: Sequence[Any]) -> bool:
    """Return whether there is a block mask."""
    blocks = tuple(block_mask[-3:-1])
    if blocks not in ((_BLOCK, _BLOCK), (_NO_MASK, _NO_MASK)):
        raise Unmeasured(f"its mask has blocks of {' × '.join(map(str, blocks))}")
    return blocks[0] == _BLOCK
