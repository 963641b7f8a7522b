"""A program that Diode does not choose for is reported too: here it compiles for the CPU."""

import json
import os
import subprocess
import sys

import pytest

from diode_engine.reports import record
from diode_engine.reports.record import Outcome

GPU = "NVIDIA H100 80GB HBM3"
# Its kernels are the library's alone, so no C++ is compiled.
PROGRAM = """
import torch

options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN"}
layer = torch.compile(torch.nn.Linear(64, 32, bias=False), options=options)
for _ in range(3):
    layer(torch.randn(8, 64, requires_grad=True)).backward(torch.ones(8, 32))
with torch.no_grad():
    layer(torch.randn(8, 64))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where a report of the program is kept."""
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, "-m", "diode_engine", "report", "--hardware", GPU, "--"]
    subprocess.run(
        [*command, sys.executable, "-c", PROGRAM],
        env={**os.environ, "DIODE_HOME": str(home)}, check=True,
    )  # fmt: skip
    return home


@pytest.fixture
def report(home, monkeypatch):
    monkeypatch.setenv("DIODE_HOME", str(home))
    (path,) = record.list_reports()
    return record.read(path)


def test_it_says_what_diode_would_choose(report):
    assert {graph.mode for graph in report.graphs} == {"max-autotune"}
    assert {p.outcome for p in report.products} == {Outcome.PREDICTED}
    assert (report.hardware, report.active) == (GPU, False)
    assert any(note.startswith("Diode was off in the program: ") for note in report.notes)


def test_the_runs_of_the_graphs_are_counted(report):
    runs = [(graph.phase, graph.runs) for graph in report.graphs]
    assert runs == [("forward", 3), ("backward", 3), ("inference", 1)]
    saved = sum(p.saved_us * (1 if p.graph == 2 else 3) for p in report.products)
    assert report.saved_in_runs_us == pytest.approx(saved)


def test_a_kept_report_is_shown_again(home, report, tmp_path, capsys):
    from diode_engine.cli import main

    page = tmp_path / "page.html"
    (path,) = record.list_reports()
    assert main(["report", "--file", str(path), "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "mm 8×32×64 float32 row16/col16" in shown
    assert "3 graphs 7 times" in " ".join(shown.split())
    assert main(["report", "--file", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["products"] == report.to_dict()["products"]
    assert "<table>" in page.read_text()
    assert "http" not in page.read_text()  # it needs no other file
