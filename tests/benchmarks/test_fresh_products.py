"""The benchmark of single products: its list, its processes, its limit and its report; no GPU is
asked."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from diode_engine.core.problem import Problem
from diode_engine.store.datasets.reading import read_dataset

ROOT = Path(__file__).parents[2]


def products() -> list[Any]:
    import fresh_products

    return fresh_products.products_in(sorted(fresh_products.FOLDER.glob("*.json")))


def row(plain: float, again: float, diode: float, **more: Any) -> dict[str, Any]:
    problem = Problem.make("mm", 2000, 10, 512, "float32", b_layout="col")
    return {
        "source": "float32", "kind": "float32", "problem": problem.to_dict(), "error": "",
        "kernel": "mm 64×32×32 s3 w4", "plain_us": plain, "again_us": again, "diode_us": diode,
        "spread": 0.01, **more,
    }  # fmt: skip


def test_no_dataset_has_the_sizes_that_were_drawn() -> None:
    def sizes(problems: Iterable[Problem]) -> set[tuple[int, int, int, int]]:
        return {(p.B, p.M, p.N, p.K) for p in problems}

    files = sorted((ROOT / "datasets").rglob("*.zst"))
    known = sizes(problem for file in files for problem in read_dataset(file).problems)
    assert len(known) > 5000
    fresh = sizes(p.problem for p in products() if p.source != "named")
    assert len(fresh) == 100
    assert fresh & known == set()


def test_sets_of_operands_are_larger_than_the_cache() -> None:
    import fresh_products

    problem = Problem.make("baddbmm", 41, 87, 57, "float32", B=5, b_layout="col")
    sets = fresh_products.operand_sets(problem, "cpu", 1e6)
    (size,) = {sum(x.nbytes for x in one) for one in sets}
    assert 1e6 <= size * len(sets) < 1e6 + 2 * size
    assert [tuple(x.shape) for x in sets[0]] == [s for s, _, _ in problem.input_shapes().values()]
    assert not sets[0][0].equal(sets[1][0])
    assert len(fresh_products.operand_sets(problem, "cpu", 1)) == 2
    assert len(fresh_products.operand_sets(problem, "cpu", 0)) == 1


# What a process that compiles does here instead of its work.
WORKER = """
import json, os, sys
for number in map(int, sys.argv[2].split(",")):
    if number == 3:
        os.abort()
    print(json.dumps({"number": number, "error": "", "kernel": os.environ["OMP_NUM_THREADS"]}),
          flush=True)
"""


def test_a_process_that_crashes_loses_only_its_own_products(monkeypatch: Any) -> None:
    import fresh_products

    command = [sys.executable, "-c", WORKER]
    monkeypatch.setattr(fresh_products, "python", lambda *given: [*command, *given])
    found = fresh_products.compile_all(range(6), [], 2, 60)
    assert sorted(found) == [0, 1, 2, 4]
    assert found[0] == {"error": "", "kernel": "1"}


def test_a_run_goes_on_and_ends_at_its_limit(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import fresh_products

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    asked: list[Problem] = []

    def timed(problem: Problem) -> dict[str, Any]:
        asked.append(problem)
        if len(asked) == 3:
            signal.pause()  # as if it never ended
        return {"plain_us": 10.0, "again_us": 10.0, "diode_us": 8.0, "spread": 0.0}

    def compile_all(numbers: Any, *_: Any) -> dict[int, Any]:
        return {n: {"error": "no kernel" if n == 1 else "", "kernel": "aten"} for n in numbers}

    monkeypatch.setattr(fresh_products, "timed", timed)
    monkeypatch.setattr(fresh_products, "compile_all", compile_all)
    some = products()[:5]
    file = tmp_path / "rows.jsonl"
    args = argparse.Namespace(seconds=0.5, shapesets=[], compilers=1)
    rows = fresh_products.Rows(file)
    fresh_products.measure(some, rows, args)
    written = [json.loads(text) for text in file.read_text().splitlines()]
    assert [Problem.from_dict(r["problem"]) for r in written] == [p.problem for p in some[:3]]
    assert [r["error"] for r in written] == ["", "no kernel", ""]
    assert asked == [some[i].problem for i in (0, 2, 3)]
    fresh_products.report(rows.rows)
    assert "all                             2   1.250" in capsys.readouterr().out
    fresh_products.measure(some, fresh_products.Rows(file), args)  # again, after the limit
    assert asked[3:] == [some[i].problem for i in (3, 4)]


def test_slower_is_over_the_slower_of_two_plain_compiles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import fresh_products

    rows = [
        row(10.0, 10.0, 5.0),
        row(10.0, 11.0, 11.0),  # the second plain compile was as slow
        row(10.0, 10.0, 20.0, source="named", kind="half odd"),
        {**row(1.0, 1.0, 1.0), "error": "RuntimeError: out of memory\nand more"},
    ]
    fresh_products.report(rows)
    lines = capsys.readouterr().out.splitlines()
    cells = {text[:24].strip(): text[24:].split() for text in lines}
    assert cells["all"][:4] == ["3", "0.969", "1", "("]
    assert cells["kind float32"][:2] == ["2", "1.348"]
    assert cells["source named"][:3] == ["1", "0.500", "1"]
    assert sum("SLOWER" in text for text in lines) == 2  # listed as slower, and among the named
    assert any("out of memory" in text for text in lines)
