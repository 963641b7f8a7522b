"""A program's report, of Inductor's real lowering for a pretended GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import diode_engine
from diode_engine.core.hardware import H200
from diode_engine.inductor.hook.product_notes import ProductNotes
from diode_engine.inductor.without_gpu import lower, without_data
from diode_engine.reports.assembling import assemble
from diode_engine.reports.record import Outcome, Product, Report
from tests.inductor_nogpu.conftest import FixedPredictor, empty

MAX_AUTOTUNE = "max-autotune-no-cudagraphs"


@pytest.fixture
def report() -> Iterator[Callable[[], Report]]:
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


def by_kind(report: Report) -> dict[str, Product]:
    return {product.places[0].kind: product for product in report.products}


def test_products_have_counts_places_and_the_choices(
    predictor: FixedPredictor, report: Callable[[], Report]
) -> None:
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


@pytest.mark.usefixtures("predictor")
def test_in_the_default_mode_it_says_what_diode_would_choose(
    report: Callable[[], Report],
) -> None:
    lower(net, mode="default")
    found = report()
    assert {p.outcome for p in found.products} == {Outcome.PREDICTED}
    assert all(p.kernel and p.library_us for p in found.products)
    assert "4 of 4 products were compiled in the default mode" in found.notes[0]


def test_noting_changes_no_program(predictor: FixedPredictor, report: Callable[[], Report]) -> None:
    watched = lower(net)
    assert len(report().products) == 2
    asked = len(predictor.asked)
    diode_engine.install_diode_choices(predictor=(stock := FixedPredictor()), top_k_configs=1)
    lowered = lower(net)
    assert (lowered.seen, len(stock.asked)) == (watched.seen, asked)
