"""The report of benchmarks/grouped_mm.py, and the dataset that it writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diode_engine.choosing.policy import taken
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.operators.grouped import DIVISIONS, MILD, UNIFORM, ZIPF
from diode_engine.core.problem import Problem
from diode_engine.registry import load_predictor

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROBLEM = Problem.make("grouped_mm_rows", 4096, 2816, 2048, "bfloat16", B=64)


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in set(sys.modules) - before:
        if name in ("grouped_mm", "measuring"):
            del sys.modules[name]


def row(candidate: Candidate, us: dict[str, float]) -> dict[str, Any]:
    times = {UNIFORM: 10.0, **dict.fromkeys(DIVISIONS[1:], 12.0)} | us
    return {
        "problem": PROBLEM.to_dict(),
        "candidate": candidate.to_dict(),
        "us": {division: [us - 1, us] for division, us in times.items()},
    }


def tile(block: int) -> Candidate:
    config = {"BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 3, "num_warps": 4}
    return Candidate.make("triton::grouped_mm", BLOCK_M=block, **config)


LIBRARY = Candidate.make("aten::_grouped_mm")
ROWS = [
    row(LIBRARY, {}),
    row(tile(64), {MILD: 6.0, ZIPF: 10.0}),
    row(tile(128), {UNIFORM: 5.0}),
    {**row(tile(32), {}), "us": {UNIFORM: [1.0, 2.0]}},  # hopeless: the rest was not timed
    {**row(tile(16), {}), "us": {}, "error": "OutOfResources"},
]


def test_the_report_says_what_is_lost_where_groups_are_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import grouped_mm as script

    script.report(ROWS)
    said = capsys.readouterr().out
    assert "1 problems; 1 candidates failed" in said
    assert "with a router's groups: 1.500 in the geomean" in said  # 12 over (6 + 10) / 2
    lines = {" ".join(line.split(":")[0].split()): line for line in said.splitlines()}
    equal = lines["chosen by equal groups under mild skew"]
    assert ": 0.500 of the best" in equal
    assert "; 1.000 of the library's speed" in equal
    assert ": 1.000 of the best" in lines["chosen by a router's groups under mild skew"]
    assert "; 1.500 of the library's speed" in lines["chosen by a router's groups under a router's"]


def test_the_report_has_what_the_shipped_model_takes(capsys: pytest.CaptureFixture[str]) -> None:
    import grouped_mm as script

    model = load_predictor(H200)
    assert model is not None
    candidates = [LIBRARY, tile(64), tile(128)]
    choice = candidates[taken(PROBLEM, candidates, model.predict(PROBLEM, candidates))[0]]
    others = [row(c, {}) for c in candidates if c != choice]
    script.report([*others, row(choice, dict.fromkeys(DIVISIONS, 6.0))], model)
    said = capsys.readouterr().out
    lines = {" ".join(line.split(":")[0].split()): line for line in said.splitlines()}
    assert ": 1.000 of the best" in lines["chosen by the shipped model under zipf"]


def test_the_dataset_has_the_mean_over_a_routers_groups() -> None:
    import grouped_mm as script

    table = script.table(ROWS, Environment(H200, "1.2.3", "2.11.0", "3.6.0"))
    assert set(table.candidates) == {LIBRARY, tile(64), tile(128)}
    of = table.candidates.index(tile(64))
    assert table.median_us[table.candidate == of].tolist() == [8.0]
    assert table.min_us[table.candidate == of].tolist() == [7.0]
