"""The sources of candidates that Diode adds to what Inductor offers: a line for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_symbols

from diode_engine.core.templates import template_of
from diode_engine.inductor.lowering.sources.source import CandidateSource
from diode_engine.inductor.torch_internals.templates import parts_of_choices

SOURCES: dict[str, CandidateSource] = {}  # by the name of the record in the table of templates


def add_offers(
    op_name: str, offers: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return Inductor's generators of choices, by template, with those of the op's sources.

    Sources are asked where the library's call is among the `offers`, and get its operands and its
    `overrides`; not for dynamic sizes, nor for a program in C++."""
    names = [name for name in SOURCES if op_name in template_of(name).ops]
    library = [uid for uid in offers if template_of(uid).extern] if names else []
    if not library or V.graph.cpp_wrapper:
        return offers
    parts = parts_of_choices(offers[library[0]])
    nodes = parts["inputs"].nodes()
    if free_symbols([(node.get_size(), node.maybe_get_stride()) for node in nodes]):
        return offers
    given = (overrides or {}).get(library[0], {})
    return {**offers, **{name: SOURCES[name].offer(op_name, parts, given) for name in names}}
