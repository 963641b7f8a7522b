"""What Diode takes of Inductor's heuristics, generators and subgraphs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from diode_engine.inductor.torch_internals.templates import compiled_subgraph, parts_of_choices

MODULE = SimpleNamespace(call=print)


@pytest.mark.parametrize("returned", [MODULE, (MODULE, [])])  # torch 2.10 returns the second
def test_a_compiled_subgraph_is_its_module(returned):
    caller = SimpleNamespace(_compile_for_benchmarking=lambda: returned)
    assert compiled_subgraph(caller) is MODULE


PARTS = {"template": 0, "extra_kwargs": 1, "layout": 2, "inputs": 3}


def test_the_parts_of_choices_are_the_arguments_of_a_generator_that_has_not_ended():
    def offers(template, extra_kwargs, layout, inputs):
        yield len((template, extra_kwargs, layout, inputs))

    offer = offers(**PARTS)
    assert parts_of_choices(offer) == PARTS
    assert next(offer) == 4
    assert parts_of_choices(offer) == PARTS


def test_the_parts_of_a_list_are_those_of_its_choices():
    assert parts_of_choices([SimpleNamespace(**PARTS, params=4)]) == PARTS
