"""Tables and durations as plain text."""

from __future__ import annotations

import pytest

from diode_engine.plain_text import format_duration, format_records, format_table


def test_a_table_keeps_within_the_width():
    rows = [
        {"id": "1", "GPU": "NVIDIA H200", "best": "triton::mm 16×16×16", "no": "", "µs": "3.25"},
        {"id": "22", "GPU": "NVIDIA H200", "best": "aten::mm", "no": "", "µs": "12.50"},
    ]
    assert format_records(rows, width=80).splitlines() == [
        "id  GPU          best                    µs",
        "──  ───────────  ───────────────────  ─────",
        " 1  NVIDIA H200  triton::mm 16×16×16   3.25",
        "22  NVIDIA H200  aten::mm             12.50",
    ]
    for width, header in ((32, "id  best                    µs"), (20, "id     µs")):
        narrow = format_records(rows, spare=("GPU", "best"), cut="best", width=width)
        assert narrow.splitlines()[0] == header
    long = [{"id": "1", "message": "a long story of what went wrong"}]
    assert format_records(long, cut="message", width=20).splitlines()[2] == " 1  a long story of…"


def test_columns_of_numbers_are_to_the_right_and_names_may_repeat():
    text = format_table(
        ["", "a", "a", "b"], [["x", "+1.5%", "1e+03", "9×"], ["y", "", "12 %", "n"]]
    )
    assert text.splitlines()[2:] == ["x  +1.5%  1e+03  9×", "y          12 %  n"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min"), (3725, "1 h 2 min"), (90061, "1 d 1 h")],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text
