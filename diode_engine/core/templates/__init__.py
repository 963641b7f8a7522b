"""The table of kernel templates: all that Diode knows of a template, by its name.

A family of templates is a module of this folder, with its records in `TEMPLATES`, and a line in
`_FAMILIES`. Other code asks `template_of` for a template's record and does not compare names.
"""

from __future__ import annotations

from functools import cache

from diode_engine.core.operators import OPERATORS
from diode_engine.core.templates import (
    aten,
    decompose_k,
    grouped_mm,
    mm_plus_mm,
    scaled_tma,
    triton,
    triton_tma,
)
from diode_engine.core.templates.template import (
    OTHER_PARAMETERS,
    SPLIT_PARAMETERS,
    TILE_PARAMETERS,
    TMA_OPTION,
    Template,
)

# In the order in which Inductor offers them.
_FAMILIES = (
    aten,
    decompose_k,
    scaled_tma,
    triton,
    triton_tma,
    mm_plus_mm,
    grouped_mm,
)
# By Inductor's uid; the same in torch 2.10 to 2.15.
TEMPLATES: dict[str, Template] = {
    template.name: template for family in _FAMILIES for template in family.TEMPLATES
}


def template_of(name: str) -> Template:
    """The template of this name. For a name that is not in the table, the record is made from
    Inductor's naming rules (aten::, triton::, tma); no model predicts its candidates."""
    return TEMPLATES.get(name) or _not_in_table(name)


def templates_for(op: str) -> tuple[Template, ...]:
    """The templates that Inductor offers for the operator, in Inductor's order: those that name the
    operator, and those that the operator names."""
    named = OPERATORS[op].templates if op in OPERATORS else ()
    return tuple(
        template for template in TEMPLATES.values() if op in template.ops or template.name in named
    )


@cache
def _not_in_table(name: str) -> Template:
    kernel = name.startswith("triton::")
    library = name.startswith("aten::")
    tma = "tma" in name
    return Template(
        name=name,
        label=name.removeprefix("triton::").replace("persistent_tma", "tma"),
        ops=(),
        extern=library,
        parameters={**TILE_PARAMETERS, **SPLIT_PARAMETERS},
        other_parameters=OTHER_PARAMETERS,
        tma=tma,
        fuses_epilogue=kernel,
        fuses_prologue=not library,
        option=TMA_OPTION if tma else "",
    )
