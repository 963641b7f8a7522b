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


def parts_of_choices(offer: Any) -> tuple[Any, Any, Any] | None:
    """Return what all KernelTemplateChoices of a generator (of InductorChoices.get_ktc) are made
    with: extra_kwargs, layout and inputs. They are the generator's arguments, and Inductor takes
    long to make them. None where it is another kind of generator, or has ended."""
    try:
        given = getgeneratorlocals(offer)
        return given["extra_kwargs"], given["layout"], given["inputs"]
    except (TypeError, KeyError):
        return None


def compiled_subgraph(caller: Any) -> Any:
    """Return the module that Inductor generates for a choice that is a subgraph; `call` of it takes
    a list of the operands. It can only be compiled while the choice's graph is open. The public way
    to compile one times it too."""
    compiled = caller._compile_for_benchmarking()
    # torch 2.10 returns the values of symbolic sizes too.
    return compiled[0] if isinstance(compiled, tuple) else compiled
