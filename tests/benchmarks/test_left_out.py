"""The benchmark of kinds that were left out of training, on few problems."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from diode_engine.core.problem import Problem

ROOT = Path(__file__).parents[2]
DATASET = ROOT / "datasets" / "nvidia-h200" / "harvest-2026-11-22.packed.zst"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("left_out", "transfer"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_each_kind_is_judged_by_a_model_with_it_and_one_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import left_out

    out = tmp_path / "rows.jsonl"
    left_out.main(
        [str(DATASET), "--part", "4", "--rounds", "12", "--families", "1", "--json", str(out)]
    )
    rows = {row["left_out"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert {"K ≤ 64", "batches", "programs: decoder"} <= set(rows)
    for row in rows.values():
        assert row["judged"] >= left_out.MIN_JUDGED
        assert row["learned"] > 0
        assert all(0.1 < row[side]["geomean"] <= 1 for side in ("with", "without"))
        assert row["with"] != row["without"]
    assert capsys.readouterr().out.count("\n") == len(rows) + 2


def test_a_model_learns_nothing_of_what_is_left_out() -> None:
    import left_out

    table = left_out.read_dataset(DATASET)
    table = table.take(left_out.rows_of(table, lambda p: left_out.fold(p, 6, seed=9) == 0))
    learned = left_out.TrainingSplit.of(table).learned
    trees = left_out.LeftOut(learned, left_out.TrainingSettings(), 10)

    def small(problem: Problem) -> bool:
        return problem.M <= 128

    sides = trees.examples(small)
    left = {learned.problems[i] for side in sides for i in side.problem.tolist()}
    others = {learned.problems[i] for i in learned.problem.tolist()}
    assert left == {problem for problem in others if not small(problem)} != others
