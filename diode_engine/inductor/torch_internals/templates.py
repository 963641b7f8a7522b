"""How Inductor makes the kernels of a template: its heuristics, generators and subgraphs."""

from __future__ import annotations

from inspect import getgeneratorlocals
from typing import Any


def exhaustive_configs(heuristic: Any) -> list[Any] | None:
    """Return all configs that a template's heuristic offers, before it cuts them to a problem; None
    where it makes its configs in another way."""
    try:
        configs: list[Any] = heuristic._filter_configs(heuristic.exhaustive_configs)
    except AttributeError:
        return None
    return configs


def parts_of_choices(offer: Any) -> dict[str, Any]:
    """Return the arguments with which all KernelTemplateChoices of a template are made, by name.
    Its generator (of InductorChoices.get_ktc) has them, and Inductor takes long to make them.
    `offer` is the generator before its end, or a list of its choices."""
    given = vars(offer[0]) if isinstance(offer, list) else getgeneratorlocals(offer)
    return {name: given[name] for name in ("template", "extra_kwargs", "layout", "inputs")}


def compiled_subgraph(caller: Any) -> Any:
    """Return the module that Inductor generates for a choice that is a subgraph; `call` of it takes
    a list of the operands. It can only be compiled while the choice's graph is open. The public way
    to compile one times it too."""
    compiled = caller._compile_for_benchmarking()
    # torch 2.10 returns the values of symbolic sizes too.
    return compiled[0] if isinstance(compiled, tuple) else compiled
