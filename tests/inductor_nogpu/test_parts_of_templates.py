"""What Diode takes of Inductor's subgraphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from diode_engine.inductor.torch_internals.templates import compiled_subgraph

MODULE = SimpleNamespace(call=print)


@pytest.mark.parametrize("returned", [MODULE, (MODULE, [])])  # torch 2.10 returns the second
def test_a_compiled_subgraph_is_its_module(returned: Any) -> None:
    caller = SimpleNamespace(_compile_for_benchmarking=lambda: returned)
    assert compiled_subgraph(caller) is MODULE
