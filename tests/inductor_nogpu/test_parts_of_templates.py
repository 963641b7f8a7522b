"""What Diode takes of Inductor's heuristics, generators and subgraphs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from diode_engine.inductor.torch_internals.templates import (
    compiled_subgraph,
    parts_of_choices,
)

MODULE = SimpleNamespace(call=print)


@pytest.mark.parametrize("returned", [MODULE, (MODULE, [])])  # torch 2.10 returns the second
def test_a_compiled_subgraph_is_its_module(returned: Any) -> None:
    caller = SimpleNamespace(_compile_for_benchmarking=lambda: returned)
    assert compiled_subgraph(caller) is MODULE


def test_the_parts_of_choices_are_the_arguments_of_a_generator_that_has_not_ended() -> None:
    def offers(extra_kwargs: Any, layout: Any, inputs: Any) -> Iterator[int]:
        yield len((extra_kwargs, layout, inputs))

    offer = offers(1, 2, 3)
    assert parts_of_choices(offer) == (1, 2, 3)
    assert next(offer) == 3
    assert parts_of_choices(offer) == (1, 2, 3)
    assert list(offer) == []
    assert parts_of_choices(offer) is None


def test_other_offers_have_no_parts() -> None:
    assert parts_of_choices(each for each in (1, 2)) is None
    assert parts_of_choices([]) is None
    assert parts_of_choices(iter([1])) is None
