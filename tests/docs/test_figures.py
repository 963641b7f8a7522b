"""Measured figures stand in generated tables, and nowhere else in README and the guide."""

import json
import re
import runpy
from pathlib import Path

import pytest
import zstandard

ROOT = Path(__file__).parents[2]
# Thresholds, and figures of a file's form: they are rules and examples, not measurements.
RULES = {"0.003"}


@pytest.fixture(scope="module")
def writer():
    return runpy.run_path(str(ROOT / "docs" / "write_figures.py"))


@pytest.mark.parametrize("page", ["README.md", "docs/results.md", "docs/notes/programs.md"])
def test_the_tables_are_of_the_measured_rows(writer, page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "<!-- figures: " in text
    assert writer["with_tables"](text) == text, "run `python docs/write_figures.py`"


def test_measured_programs_of_libraries_have_a_table(writer, tmp_path, monkeypatch):
    monkeypatch.setitem(writer["clients"].__globals__, "RESULTS", tmp_path)
    page = "<!-- figures: clients -->\n<!-- end -->\n"
    assert writer["with_tables"](page) == page
    measured = {"program": "p", "cold_s": 9.0, "step_us": 1234.0, "first_bytes": 2**30}
    rows = [
        {**measured, "way": "plain", "step_bytes": 2**31},
        {**measured, "way": "again", "cold_s": 10.0},
        {**measured, "way": "diode", "process_s": 29.0},  # 20 s before the first step
        {"program": "p", "way": "search", "error": "It took over 100 s."},
    ]
    with zstandard.open(tmp_path / "clients-h100-2026-11-24.jsonl.zst", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert writer["with_tables"](page).splitlines()[7] == (
        "| p | H100 | 9.0, 10.0 | 9.0 | over 80 | 1.23 | 1.23 | – | 2.0, 1.0 | 1.0 | – |"
    )


def test_every_file_of_programs_is_among_the_sets(writer):
    files = {file.name for file in writer["RESULTS"].glob("zoo-h200-*.jsonl.zst")}
    assert {measured.file for measured in writer["SETS"]} == files


def test_no_page_of_the_guide_has_a_figure_of_its_own():
    """The measurement notes have them (docs/notes/), and the generated tables."""
    generated = re.compile(r"<!-- figures: .*?<!-- end -->|```.*?```", re.DOTALL)
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = generated.sub("", page.read_text(encoding="utf-8"))
        figures = set(re.findall(r"(?<![\d.])[01]\.\d{3}\b", text)) - RULES
        assert not figures, page.name


def test_the_front_page_names_no_version_of_a_model():
    assert not re.search(r"gemm[\w-]*@\d", (ROOT / "README.md").read_text(encoding="utf-8"))
