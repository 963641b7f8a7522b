"""The shipped table of FlexAttention's configs, made again and judged on the calls held out."""

from __future__ import annotations

import pytest

from diode_engine.core.hardware import H200
from diode_engine.models.flex_attention import FlexTable, path_for, table_for


def shipped() -> FlexTable:
    table = table_for(H200)
    assert table is not None
    return table


def test_the_shipped_table_is_that_of_the_rows():
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
def test_it_chooses_well_on_calls_that_were_held_out(why, kind, count, share, speed):
    import flex_chooser as fc

    held_out = [e for e in fc.read(fc.ROWS) if e.held_out == why and e.call.kind == kind]
    found = fc.judged(shipped(), held_out)
    assert len(found) == count
    assert fc.geomean(mine / best for mine, best in found.values()) > share
    assert fc.geomean(mine for mine, _ in found.values()) > speed
    assert min(mine for mine, _ in found.values()) > 0.9


def test_what_was_timed_once_more_counts_and_what_failed_is_not_in_the_table():
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
