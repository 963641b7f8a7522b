"""FlexAttention's benchmark without a GPU, and the shipped table of its configs, made again and
judged on the calls held out."""

from __future__ import annotations

import json
from unittest import mock

import pytest
import torch
import zstandard

from diode_engine.core.hardware import H200
from diode_engine.models.flex_attention import FlexTable, path_for, table_for


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


def shipped() -> FlexTable:
    table = table_for(H200)
    assert table is not None
    return table


def test_the_shipped_table_is_that_of_the_rows() -> None:
    import flex_chooser as fc

    measured = fc.read(fc.ROWS)
    assert len(measured) == 200
    known = [each for each in measured if not each.held_out]
    assert fc.fitted(known).to_json() == path_for(H200).read_text()
    assert {each.held_out for each in measured} == {"", "by hash", "by heads"}


@pytest.mark.parametrize(
    ("why", "kind", "count", "share", "speed"),
    [("by hash", "forward", 34, 0.98, 1.105), ("by heads", "forward", 28, 0.985, 1.10),
     ("by hash", "backward", 5, 0.98, 1.13)],
)  # fmt: skip
def test_it_chooses_well_on_calls_that_were_held_out(
    why: str, kind: str, count: int, share: float, speed: float
) -> None:
    import flex_chooser as fc

    held_out = [e for e in fc.read(fc.ROWS) if e.held_out == why and e.call.kind == kind]
    found = fc.judged(shipped(), held_out)
    assert len(found) == count
    assert fc.geomean(mine / best for mine, best in found.values()) > share
    assert fc.geomean(mine for mine, _ in found.values()) > speed
    assert min(mine for mine, _ in found.values()) > 0.9


def test_what_was_timed_once_more_counts_and_what_failed_is_not_in_the_table() -> None:
    import flex_chooser as fc

    row = {"kind": "forward", "head": 64, "dtype": "bfloat16", "mask": "document", "heads": 16,
           "kv_heads": 4, "batch": 2, "length": 512, "problem": "one", "config": [64, 64, 3, 4],
           "default_us": 10.0}  # fmt: skip
    rows = [
        {**row, "tier": "confirmed", "us": 8.0}, {**row, "tier": 1, "us": 5.0},
        {**row, "config": [64, 32, 3, 4], "tier": 1, "us": 9.0},
        {**row, "config": [128, 64, 5, 8], "tier": 1, "error": "CUDA error 1"},
    ]  # fmt: skip
    measured = fc._measured("one", rows)
    assert measured.speeds == {(64, 64, 3, 4): 1.25, (64, 32, 3, 4): 10 / 9, (128, 128, 3, 4): 1.0}
    assert (measured.call.heads, measured.call.masked, measured.call.reads) == (32, True, True)
    (group,) = fc.fitted([measured] * fc.MIN_CALLS).groups
    assert group.configs == ((64, 64, 3, 4),)  # nothing is brought by the other
    assert not fc.fitted([measured]).groups
