"""The file of a program's report: it is read as it was written, and a malformed one is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diode_engine.errors import ReportError
from diode_engine.reports import record
from diode_engine.reports.record import SEARCH_SECONDS, Report

# Written by a real lowering for a pretended H200: a model of four layers, in max-autotune.
EXAMPLE = Path(__file__).with_name("program.json")


@pytest.fixture
def document():
    return json.loads(EXAMPLE.read_text())


def test_a_report_is_read_as_it_was_written(tmp_path):
    report = record.read(EXAMPLE)
    assert record.read(record.write(report, tmp_path / "again.json")) == report


def test_sums_count_every_place_and_a_search_every_problem_once(document):
    document["products"].append(document["products"][1])  # the same problem in another graph
    report = Report.from_dict(document)
    twice, first = report.products[1], report.products[0]
    assert (first.saved_us, twice.count) == (0.0, 8)  # the library's kernel; in four layers, twice
    assert twice.saved_us == pytest.approx(8 * (twice.library_us - twice.predicted_us))  # type: ignore[operator]
    assert report.saved_us == pytest.approx(sum(p.saved_us for p in report.products))
    assert report.search_candidates == 6 * 22
    assert report.search_seconds == pytest.approx(6 * 22 * SEARCH_SECONDS)


def test_reports_in_the_home_are_listed_newest_first(tmp_path, monkeypatch):
    monkeypatch.setenv("DIODE_HOME", str(tmp_path))
    assert record.list_reports() == []
    written = [record.write(record.read(EXAMPLE)) for _ in range(3)]
    assert record.list_reports() == written[::-1]


BROKEN: dict[str, Callable[[Any], Any]] = {
    "not an object": lambda d: [d],
    "another format": lambda d: d | {"format": "diode-dataset"},
    "a newer version": lambda d: d | {"version": 2},
    "no products": lambda d: d | {"products": None},
    "a graph that is not there": lambda d: d["products"][0].update(graph=1),
    "a text for a number": lambda d: d["products"][0].update(predicted_us="fast"),
    "a number for a bool": lambda d: d["products"][0].update(dynamic=1),
    "a negative count": lambda d: d["products"][0]["places"][0].update(count=-1),
    "an impossible problem": lambda d: d["products"][0]["problem"].update(M=0),
    "an impossible kernel": lambda d: d["products"][0].update(kernel=[]),
    "an unknown outcome": lambda d: d["products"][0].update(outcome="lost"),
    "a place that is none": lambda d: d["products"][0].update(places=[None]),
    "notes that are no texts": lambda d: d | {"notes": [1]},
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_malformed_report_is_refused(what, document, tmp_path):
    file = tmp_path / "report.json"
    file.write_text(json.dumps(BROKEN[what](document) or document))
    with pytest.raises(ReportError, match=r"report\.json: .*\."):
        record.read(file)


def test_what_is_no_json_or_not_there_is_refused(tmp_path):
    (tmp_path / "cut.json").write_text(EXAMPLE.read_text()[:-9])
    for name in ("cut.json", "missing.json"):
        with pytest.raises(ReportError, match=name):
            record.read(tmp_path / name)


def test_a_file_of_another_kind_is_not_replaced(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    with pytest.raises(ReportError, match="another file"):
        record.write(record.read(EXAMPLE), other)
    assert other.read_text() == "mine"


def test_reading_does_not_import_torch():
    code = (
        "import sys; from pathlib import Path; from diode_engine.reports import record; "
        f"record.read(Path({str(EXAMPLE)!r})); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
