"""A program's report, of Inductor's real lowering for a pretended GPU."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor.choices import InductorChoices
from torch._inductor.output_code import CompiledFxGraph

import diode_engine
from diode_engine.core.hardware import H200
from diode_engine.inductor.hook import choices, product_notes
from diode_engine.inductor.hook.product_notes import ProductNotes
from diode_engine.inductor.without_gpu import lower, without_data
from diode_engine.reports import record
from diode_engine.reports.assembling import assemble
from diode_engine.reports.record import Outcome
from tests.inductor_nogpu.conftest import (
    SPEECHLESS,
    FixedPredictor,
    build_of,
    empty,
    install,
    lower_step,
)
from tests.inductor_nogpu.test_grouped import experts, sizes

pytestmark = pytest.mark.usefixtures("predictor")


@pytest.fixture
def report():
    """The report of what was lowered in the test so far."""
    notes: list[dict[str, Any]] = []
    watch = ProductNotes(lambda **note: notes.append(note))
    watch.begin()
    yield lambda: assemble([notes], "a test", hardware=H200)
    watch.end()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(1024, 4096, dtype=torch.bfloat16, device="meta")
        self.down = torch.nn.Linear(4096, 1024, dtype=torch.bfloat16, device="meta", bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def net() -> tuple[Any, Sequence[torch.Tensor]]:
    return without_data(torch.nn.Sequential(Block(), Block())), [empty(128, 1024)]


def test_products_have_counts_places_and_the_choices(report):
    lower(net)
    found = report()
    assert [(p.name.split()[0], p.count, p.outcome) for p in found.products] == [
        ("addmm", 2, Outcome.CHOSEN), ("mm", 2, Outcome.CHOSEN),
    ]  # fmt: skip
    up = found.products[0]
    assert [(p.module, p.kind, p.count) for p in up.places] == [
        ("0.up", "Linear", 1), ("1.up", "Linear", 1),
    ]  # fmt: skip
    assert up.places[0].code == "return self.down(torch.relu(self.up(x)))"
    assert up.places[0].file == __file__
    assert (str(up.kernel), up.predicted_us) == ("triton::mm 128×256×64 s3 w8", 1.0)
    assert up.library_us is not None
    assert up.library_us > 5.0  # ATen's time, and what not fusing ReLU costs
    assert found.saved_us == 2 * (up.library_us - 1) + 2 * (5 - 1)
    assert (found.active, found.hardware) == (True, H200.name)
    assert [(g.phase, g.mode) for g in found.graphs] == [("inference", "max-autotune")]


def test_a_place_without_source_is_the_last_frame_of_the_stack():
    stack = (
        '  File "container.py", line 253, in forward\n    input = module(input)\n'
        '  File "<string>", line 16, in forward\n  File "<string>", line 9, in helper\n'
    )
    node = SimpleNamespace(meta={"stack_trace": stack})
    place = product_notes._place_of(node)
    assert place == {"module": "", "kind": "", "file": "<string>", "line": 9, "code": ""}


def test_inductor_s_functions_are_restored_and_the_hook_is_not_touched():
    before = (
        InductorChoices.get_template_configs,
        CompiledFxGraph.__init__,
        CompiledFxGraph.__call__,
    )
    watch = ProductNotes(lambda **_: None)
    watch.begin()
    assert InductorChoices.get_template_configs is not before[0]
    assert choices._is_stock()  # else Inductor would list all that it offers
    watch.end()
    assert before == (
        InductorChoices.get_template_configs, CompiledFxGraph.__init__, CompiledFxGraph.__call__,
    )  # fmt: skip


def test_noting_changes_no_program(predictor, report):
    watched = lower(net)
    assert len(report().products) == 2
    asked = len(predictor.asked)
    install(stock := FixedPredictor())
    lowered = lower(net)
    assert (lowered.seen, len(stock.asked)) == (watched.seen, asked)


def test_forward_and_backward_are_in_one_report(report):
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 64)).bfloat16()
    lower_step(net, torch.randn(128, 256, dtype=torch.bfloat16), max_autotune_gemm=True)
    found = report()
    assert [graph.phase for graph in found.graphs] == ["forward", "backward"]
    places = {(p.graph, p.problem.M, p.problem.N, p.places[0].module) for p in found.products}
    assert places == {
        (0, 128, 512, "0"), (0, 128, 64, "1"), (1, 512, 256, "0"), (1, 64, 512, "1"),
        (1, 128, 512, "1"),
    }  # fmt: skip
    assert {p.outcome for p in found.products} == {Outcome.CHOSEN}


def test_reports_inside_each_other_have_the_same_graphs(report):
    with diode_engine.report() as inner:
        lower(net)
    assert inner.read().products == report().products
    assert len(report().graphs) == 1


def test_a_second_compile_with_a_dynamic_size_is_another_graph(report):
    lower(net)
    lower(net, dynamic=True)
    found = report()
    assert {(p.graph, p.dynamic) for p in found.products} == {(0, False), (1, True)}
    sizes = {p.problem: p.candidates for p in found.products}
    assert len(sizes) == 2
    assert found.search_candidates == sum(sizes.values())  # a search times each problem once


def test_the_mode_of_a_graph_is_the_program_s(report):
    lower(net, mode="default", options={"fast_autotune": True})
    lower(net, mode="default")
    found = report()
    assert [graph.mode for graph in found.graphs] == ["fast_autotune", "default"]
    outcomes = [(p.graph, p.outcome) for p in found.products]
    assert outcomes == [(0, Outcome.CHOSEN)] * 2 + [(1, Outcome.PREDICTED)] * 2
    assert all(p.kernel and p.library_us for p in found.products)
    assert "4 of 8 products were compiled in the default mode" in found.notes[0]


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_products_of_groups_are_there(mode, report):
    lower(experts(), mode=mode)
    (product,) = report().products
    assert (product.problem, product.count) == (sizes("grouped_mm_rows"), 1)
    asked = mode != "default"
    assert product.outcome is (Outcome.CHOSEN if asked else Outcome.PREDICTED)


def test_what_is_asked_outside_the_program_is_no_product_of_it(report):
    lower(lambda: ((lambda a, b, c, d: a @ b + c @ d), [empty(256, 256)] * 4))
    found = report()
    assert (found.active, [p.name.split()[0] for p in found.products]) == (True, ["mm", "addmm"])


def test_a_bias_of_one_element_is_left_with_its_reason(predictor, report):
    lower(build_of(torch.addmm, (1,), (64, 64), (64, 64)))
    (product,) = report().products
    assert (product.outcome, predictor.asked) == (Outcome.LEFT, [])
    assert product.why == "no kernel was timed with a bias of one element"


def test_what_is_left_has_its_reason(report):
    diode_engine.install_diode_choices(predictor=SPEECHLESS)
    lower(net)
    lower(build_of(torch.mm, (64, 64), (64, 64), dtype=torch.int16))
    first, _, last = report().products
    assert (first.outcome, first.kernel, first.saved_us) == (Outcome.LEFT, None, 0.0)
    assert first.why.startswith("the model has no prediction for addmm")
    assert (last.outcome, last.problem) == (Outcome.LEFT, None)
    assert last.name.startswith("mm of")


def test_a_part_of_a_program_is_reported_and_kept():
    with diode_engine.report() as program:
        lower(net)
        assert "*.up (2)" in str(program)
        assert "on NVIDIA H200, by fixed (" in str(program)
    lower(build_of(torch.mm, (64, 64), (64, 64)))  # after the end
    assert program.path is not None
    kept = record.read(program.path)
    assert len(kept.products) == 2
    assert [record.read(path) for path in record.list_reports()] == [kept]


def test_a_report_that_cannot_be_kept_does_not_end_the_program(diode_home, caplog):
    diode_home.mkdir()
    (diode_home / "reports").write_text("in the way")
    with diode_engine.report() as program:
        lower(net)
    assert program.path is None
    assert "The report was not written" in caplog.text


def test_a_failing_note_does_not_disturb():
    plain = lower(net)

    def note(**fields):
        if "at" in fields:
            raise OSError("No space left")

    watch = ProductNotes(note)
    watch.begin()
    assert lower(net).seen == plain.seen
    watch.end()


def test_graphs_from_a_cache_are_counted():
    from torch._dynamo.utils import counters

    counters["inductor"]["fxgraph_cache_hit"] = 3
    with diode_engine.report() as program:
        counters["inductor"]["fxgraph_cache_hit"] += 2
        assert program.read().cached_graphs == 2
        assert "2 graphs came from Inductor's caches" in str(program)
