"""benchmarks/flex_attention.py without a GPU: its calls, what it notes of a search, its report."""

from __future__ import annotations

import json
from unittest import mock

import pytest
import torch
import zstandard


def test_the_plan_is_the_200_calls_of_the_measured_rows() -> None:
    import flex_attention as script
    import flex_chooser

    with zstandard.open(flex_chooser.ROWS, "rt", encoding="utf-8") as file:
        measured = {json.loads(line)["problem"] for line in file}
    assert {problem.key for problem in script.plan()} == measured
    assert len(measured) == 200


@pytest.mark.parametrize("mask", ["causal", "window", "document"])
def test_a_mask_keeps_what_its_name_says(mask: str) -> None:
    import flex_attention as script

    length = 2048  # longer than the window
    problem = script.Problem(script.Family("forward", 64, "bfloat16", mask, 4, 4), 1, length)
    m = torch.arange(length)[:, None]
    n = m.T
    kept = script.block_mask(problem, "cpu").mask_mod(0, 0, m, n)
    ids = script.documents(length)
    expected = {
        "causal": m >= n, "window": (m >= n) & (m - n < script.WINDOW_LENGTH),
        "document": (m >= n) & (ids[:, None] == ids[None, :]),
    }  # fmt: skip
    assert torch.equal(kept, expected[mask])


def test_a_search_of_inductors_is_noted_by_config() -> None:
    import flex_attention as script
    from torch._inductor.select_algorithm import get_algorithm_selector_cache

    savers = get_algorithm_selector_cache().feedback_saver_fns
    before = list(savers)
    choice = mock.Mock(description="BLOCK_M=128, BLOCK_N=64, num_stages=3, num_warps=8")
    found: dict[tuple[int, ...], float] = {}
    with script.benchmarked("forward", found):
        (save,) = [saver for saver in savers if saver not in before]
        save({choice: 0.25}, "flex_attention", [], [choice], None)
        save({choice: 0.5}, "flex_decoding", [], [choice], None)
    assert found == {(128, 64, 3, 8): 250.0}
    assert savers == before


def test_the_report_takes_the_second_timing_of_the_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import flex_attention as script

    family = script.Family("forward", 64, "bfloat16", "causal", 4, 2)
    rows = []
    for batch in (1, 2):
        problem = script.Problem(family, batch, 512)
        rows += [
            problem.row((64, 64, 3, 4), 1, us=10.0, default_us=12.0),
            problem.row((32, 64, 3, 4), 1, error="Inductor could not run it"),
            problem.row((128, 64, 3, 4), "confirmed", us=10.0, default_us=11.0),
        ]
    slower = script.Problem(family, 4, 512)  # none is faster than the default
    rows.append(slower.row((64, 64, 3, 4), 1, us=12.0, default_us=11.0))
    script.report(rows)
    said = capsys.readouterr().out
    assert "the best config as first timed: 1.129" in said  # 1.2 ** (2 / 3)
    assert "timed once more: 1.066" in said
    assert "over 1.02 for 67%" in said
