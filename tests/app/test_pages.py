"""Rows that are held in memory, in pages."""

from __future__ import annotations

import pytest

from diode_app.data.pages import Page, PageQuery, Row, page_in_memory

ROWS = tuple(
    Row(name, {"name": name, "us": str(us or "")}, {"name": name, "us": us})
    for name, us in (("mm Tall", 3.0), ("mm flat", None), ("bmm tall", 1.0), ("addmm", 2.0))
)


def keys(page: Page) -> list[str]:
    return [row.key for row in page.rows]


def test_a_page_of_all_in_the_given_order():
    page = page_in_memory(ROWS, PageQuery(page=1, rows=3))
    assert keys(page) == ["addmm"]
    assert page.total == 4


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("tall", ["mm Tall", "bmm tall"]),
        ("TALL -bmm", ["mm Tall"]),
        ("tall flat", []),
        ("-", []),
    ],
)
def test_words_filter(words, found):
    page = page_in_memory(ROWS, PageQuery(filter=words))
    assert keys(page) == found
    assert page.total == len(found)


@pytest.mark.parametrize("descending", [False, True])
def test_sorted_by_values_and_what_has_none_comes_last(descending):
    known = ["bmm tall", "addmm", "mm Tall"]
    page = page_in_memory(ROWS, PageQuery(sort="us", descending=descending))
    assert keys(page) == [*(reversed(known) if descending else known), "mm flat"]
