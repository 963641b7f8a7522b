"""The key of a remembered choice, made in a few microseconds: most GEMMs of a model were met
before."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch

from diode_engine.inductor.fusion.epilogue import Epilogue
from diode_engine.inductor.lowering.candidates import tf32_allowed


def key_of(
    op_name: str,
    kernel_inputs: Any,
    uids: tuple[str, ...],
    overrides: Mapping[str, Mapping[str, Any]] | None,
    epilogue: Epilogue | None,
) -> Hashable | None:
    """A key of everything in Inductor's inputs that a choice depends on, besides the options; None
    where a size or a stride is dynamic, since a kernel may then depend on more than the hint."""
    given = repr(overrides) if overrides and any(overrides.values()) else ""
    nodes = kernel_inputs.nodes()
    key = [op_name, uids, given, epilogue, kernel_inputs.out_dtype(), nodes[0].get_device()]
    try:
        for node in nodes:
            layout = node.get_layout()
            key.append(layout.dtype)
            if layout.dtype is torch.float32:
                key.append(tf32_allowed())
            # To hash a sympy Integer runs Python code; to hash the int in it (`p`) does not.
            key += [x if type(x) is int else x.p for x in layout.size]
            key += [x if type(x) is int else x.p for x in layout.stride]
    except AttributeError:  # an expression with symbols has no `p`
        return None
    return tuple(key)
