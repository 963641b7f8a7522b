"""A model's choices as a table for Inductor's own LookupTableChoices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor.lookup_table.choices import LookupTableChoices
from torch._inductor.virtualized import V

from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing import lookup_table as module
from diode_engine.inductor.choosing.lookup_table import lookup_entries
from diode_engine.inductor.without_gpu import Lowered, lower
from tests.inductor_nogpu.conftest import SPEECHLESS, FixedPredictor, tensors_of

PROBLEMS = {
    "mm": Problem.make("mm", 512, 768, 1024, "bfloat16", b_layout="col"),
    "addmm": Problem.make("addmm", 512, 768, 1024, "bfloat16"),
    "bmm": Problem.make("bmm", 512, 768, 1024, "float16", B=4),
    "baddbmm": Problem.make("baddbmm", 512, 768, 1024, "bfloat16", B=4),
}


def program(problem: Problem) -> tuple[Callable[..., Any], Sequence[torch.Tensor]]:
    return getattr(torch, problem.op), tensors_of(problem)


@contextmanager
def with_table(table: dict[str, Any]) -> Iterator[Callable[[Problem], Lowered]]:
    """Lowers with this table, as it comes from a file, and no Diode."""
    read = json.loads(json.dumps(table))

    def lowered(problem: Problem) -> Lowered:
        return lower(
            partial(program, problem),
            options={"lookup_table.table": read, "lookup_table.check_src_hash": True},
            benchmark=lambda candidate: 1.0 if candidate.template.startswith("triton") else 2.0,
        )

    with V.set_choices_handler(LookupTableChoices()):
        yield lowered


@pytest.mark.parametrize("op", PROBLEMS)
def test_inductor_takes_what_the_table_says(op):
    predictor = FixedPredictor()
    table = lookup_entries(PROBLEMS[op], predictor)
    with with_table(table) as lowered:
        done = lowered(PROBLEMS[op])
        seen = done.seen[0].candidates
        best = min(seen, key=predictor.time)
        assert dict(best.config).items() >= predictor.best.items()
        # addmm asks for the library's kernel apart, in some versions of torch
        assert len(seen) == 1 or (
            op == "addmm" and len(seen) == 2 and "aten::bias_addmm" in map(str, seen)
        )
        assert "BLOCK_N : tl.constexpr = 256" in done.sources[0]


def test_what_cannot_be_launched_is_not_in_the_table(monkeypatch):
    predictor = FixedPredictor()

    def fits(_problem, candidates, _hardware):
        return np.array([predictor.time(candidate) > 1 for candidate in candidates])

    monkeypatch.setattr(module, "fits", fits)
    ((entry,),) = lookup_entries(PROBLEMS["mm"], predictor).values()
    assert entry["template_id"] == "aten::mm"  # the second best


def test_several_are_left_to_be_timed():
    table = lookup_entries(PROBLEMS["mm"], FixedPredictor(), top=4)
    (entries,) = table.values()
    assert len(entries) == 4
    with with_table(table) as lowered:
        assert len(lowered(PROBLEMS["mm"]).seen[0].candidates) == 4


def test_the_library_is_taken_where_it_is_predicted_best():
    table = lookup_entries(PROBLEMS["bmm"], FixedPredictor(aten=0.5))
    with with_table(table) as lowered:
        done = lowered(PROBLEMS["bmm"])
    assert [str(c) for c in done.seen[0].candidates] == ["aten::bmm"]
    assert "triton_heuristics.template" not in done.sources[0]


def test_other_problems_and_other_templates_are_left_to_inductor():
    table = lookup_entries(PROBLEMS["mm"], FixedPredictor())
    with with_table(table) as lowered:
        other = lowered(PROBLEMS["bmm"]).seen[0].candidates
    assert len(other) > 5
    for (entry,) in table.values():
        entry["template_hash"] = "of another torch"
    with with_table(table) as lowered:
        assert len(lowered(PROBLEMS["mm"]).seen[0].candidates) > 5


def test_a_problem_that_the_model_does_not_know_is_not_in_the_table():
    assert lookup_entries(PROBLEMS["mm"], SPEECHLESS) == {}
