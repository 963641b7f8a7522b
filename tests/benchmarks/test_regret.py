"""The public sets of benchmarks/regret, and their scorer."""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.problems.harvested import is_of_held_out_family
from diode_engine.problems.splits import is_held_out_by_size

FOLDER = Path(__file__).parents[2] / "benchmarks" / "regret"

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _scorer(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture(scope="module")
def shipped():
    """The head and the problems, as the README reads them."""
    code = re.search(r"```python\n(import json.*?)```", (FOLDER / "README.md").read_text(), re.S)
    found: dict[str, Any] = {}
    exec(code[1].replace('"h200', f'"{FOLDER}/h200'), found)  # noqa: S102  # our own README's
    assert found["timed"][-1][1] == found["problems"][-1]["us"][-1]
    return found["head"], found["problems"]


def test_the_set_is_whole(shipped):
    head, rows = shipped
    assert len(rows) == 1895
    assert len({row["id"] for row in rows}) == len(rows)
    kernels = [Candidate.make(**fields) for fields in head["candidates"]]
    assert len(set(kernels)) == len(kernels)
    for row in rows:
        assert len(row["candidates"]) == len(set(row["candidates"])) == len(row["us"]) >= 10
        assert min(row["us"]) > 0
        assert kernels[row["candidates"][row["library"]]].is_extern
        assert row["default"]
        assert max(row["default"]) < len(row["us"])


def test_no_model_may_learn_from_the_set(shipped):
    for row in shipped[1]:
        problem = Problem.from_dict(row["problem"])
        assert problem.key.startswith(row["id"])
        assert is_held_out_by_size(problem) or is_of_held_out_family(problem)
        assert row["splits"] == [
            *(["sizes"] if "sizes" in row["splits"] else []),
            *(["families"] if row["families"] else []),
        ]


def made_row(name: str, us: Sequence[float], *, default: Sequence[int] = (0,), **more: Any) -> Row:
    problem = Problem.make("mm", 64, 64, 64, "float16").to_dict() | more
    return {
        "id": name, "splits": ["sizes"], "families": [], "dataset": "made", "problem": problem,
        "library": 0, "default": list(default), "candidates": [*range(len(us))], "us": list(us),
    }  # fmt: skip


def made_set(path: Path, *rows: Row, **more: Any) -> Path:
    """A file of problems of three candidates each, the first of them the library's."""
    head = {"candidates": [{"template": "aten::mm"}, *({"BLOCK_M": m} for m in (16, 32))], **more}
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, (head, *rows))).encode()))
    return path


@pytest.fixture
def made(tmp_path):
    return made_set(
        tmp_path / "made.jsonl.xz",
        made_row("a", (10, 5, 20), default=(0, 1)),
        made_row("b", (10, 20, 40)),
        made_row("c", (10, 10, 10), allow_tf32=True, M=1),
    )


def scored(made: Path, *choosers: str) -> tuple[dict[str, Any], str]:
    report = made.with_name("report.json")
    command = [str(FOLDER / "score.py"), *choosers, "--set", str(made), "--json", str(report)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(report.read_text()), done.stdout


def figure(report: dict[str, Any], name: str, column: str, group: str = "all/all") -> float:
    kind, _, which = group.partition("/")
    value: float = report[kind][which]["choosers"][name][column][0]
    return value


def test_figures_are_those_that_a_hand_counts(made, tmp_path):
    """By a chooser that gives an order, one that gives a place, and one that has no answer."""
    ordered, single, mute = (tmp_path / f"{n}.py" for n in ("ordered", "single", "mute"))
    ordered.write_text("def choose(problem, candidates): return [2, 0]")
    single.write_text("def chooser(text):\n    return lambda problem, candidates: int(text)")
    mute.write_text("def choose(problem, candidates): return None")
    report, shown = scored(made, str(ordered), f"{single}:1", str(mute))

    assert figure(report, "ordered", "regret") == pytest.approx((3 + 3 + 0) / 3)
    assert figure(report, "ordered", "efficiency") == pytest.approx((1 / 16) ** (1 / 3))
    assert figure(report, "ordered", "worst") == 0.25
    assert figure(report, "ordered", "first five") == pytest.approx(0.5 ** (1 / 3))
    assert figure(report, "ordered", "slower") == pytest.approx(2 / 3)
    assert figure(report, "single", "regret") == pytest.approx(1 / 3)
    assert "first five" not in report["all"]["all"]["choosers"]["single"]
    library = "the library's kernel (ATen)"
    for column in ("regret", "efficiency", "worst", "slower"):
        assert figure(report, "mute", column) == figure(report, library, column)
    assert figure(report, "max-autotune DEFAULT", "efficiency") == 1
    assert figure(report, "ordered", "speed") == pytest.approx(0.5)
    assert figure(report, "single", "speed") == pytest.approx(1)
    assert figure(report, "the best of all", "speed") == pytest.approx(2 ** (1 / 3))
    assert figure(report, "single", "efficiency", "type/tf32") == 1
    assert report["M"]["up to 16"]["problems"] == 1
    assert "| ordered | 200.0 % (0.0–300.0) |" in shown


def test_intervals_hold_their_figure_and_are_the_same_again(made, tmp_path):
    chooser = tmp_path / "second.py"
    chooser.write_text("def choose(problem, candidates): return 1")
    report, shown = scored(made, str(chooser))
    for value, low, high in report["all"]["all"]["choosers"]["second"].values():
        assert low <= value <= high
    assert scored(made, str(chooser)) == (report, shown)


def test_a_chooser_that_names_what_is_not_there_is_told_so(made, tmp_path):
    chooser = tmp_path / "wrong.py"
    chooser.write_text("def choose(problem, candidates): return len(candidates)")
    for given, says in ((chooser, "a: a chooser named a candidate"), ("no.py", "no chooser no.py")):
        command = [sys.executable, str(FOLDER / "score.py"), str(given), "--set", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert says in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["diode", "roofline"])
def test_diodes_choosers_order_a_problem(name, shipped):
    import score

    head, rows = shipped
    row = min(rows, key=lambda r: len(r["us"]))
    _, choose = score.loaded(str(FOLDER / "choosers" / f"{name}.py"))
    (order,) = score.answers([row], head["candidates"], choose)
    assert sorted(order) == sorted(set(order))
    assert 1 < len(order) <= len(row["us"])


def test_a_set_says_what_is_true_of_a_candidate_for_one_problem(tmp_path):
    """And what counts as slower, and what its own choosers are called."""
    rows = (
        {**made_row(name, (100, 103, 104)), "offer": {"place": places}}
        for name, places in (("a", [0, 1, None]), ("b", [0, None, 1]))
    )
    made = made_set(tmp_path / "made.jsonl.xz", *rows, slower=1.03, names={"library": "first"})
    chooser = tmp_path / "second.py"
    chooser.write_text(
        "def choose(problem, candidates):\n"
        "    assert [c.get('BLOCK_M') for c in candidates] == [None, 16, 32]\n"
        "    return [c['place'] for c in candidates].index(1)"
    )
    report, shown = scored(made, str(chooser))
    assert figure(report, "second", "slower") == 0.5
    assert figure(report, "second", "worst") == pytest.approx(100 / 104)
    assert "| first | 0.0 %" in shown
    assert "| max-autotune DEFAULT | 0.0 %" in shown


ALGORITHMS = FOLDER / "library-h100-2026-11-24.jsonl.xz"
ROWS = ("library-learning-h100-2026-11-26.jsonl.zst", "library-h100-2026-11-24.jsonl.zst")


def test_the_set_of_algorithms_is_of_products_that_were_not_learned():
    import library_chooser
    import score
    from processes import read_rows

    files = [FOLDER.parent / "results" / name for name in ROWS]
    rows = [row["problem"] for file in files for row in read_rows(file)
            if row["source"] in library_chooser.LEARNED]  # fmt: skip
    names = ("B", "M", "N", "K", "dtype", "allow_tf32", "a_layout", "b_layout")
    learned = {tuple(row[name] for name in names) for row in rows}
    head, problems = score.read(ALGORITHMS)
    assert len(problems) == 86
    for row in problems:
        assert tuple(row["problem"][name] for name in names) not in learned
        assert row["library"] == row["offer"]["place"][0] == 0
        assert len(row["candidates"]) == len(row["us"]) >= 30
    kernels = [Candidate.make(**fields) for fields in head["candidates"]]
    assert len(set(kernels)) == len(kernels)


def test_the_trees_choose_among_algorithms_as_in_a_compile():
    """By the margin for aligned operands, else the heuristic's first; in half precision."""
    import library_chooser
    import score

    from diode_engine.models.library_algorithms import UNLISTED, Config, Offer, model_for

    head, rows = score.read(ALGORITHMS)
    model = model_for(library_chooser.H100)
    assert model is not None
    ways = [library_chooser.chooser(argument) for argument in ("", ",order")]
    others = 0
    for row in rows:
        problem = Problem.from_dict(row["problem"])
        if "aligned" not in row["splits"] and model.knows(problem):
            continue
        answer, order = (score.answers([row], head["candidates"], way)[0] for way in ways)
        if not model.knows(problem):
            assert answer == order == []
            continue
        offers = {
            place: Offer(config, each["workspace"], each["waves"], each["place"])
            for place, each in enumerate(score.offered(row, head["candidates"]))
            if (config := Config(*(each[name] for name in Config._fields))) in model.configs
            or each["place"] != UNLISTED
        }
        chosen = [*offers][model.choose(problem, [*offers.values()], library_chooser.H100)]
        assert answer[0] == chosen
        assert sorted(answer) == sorted(order) == [*offers]
        if chosen:
            others += 1
            odd = {**row, "problem": {**row["problem"], "b_align": 4}}
            assert score.answers([odd], head["candidates"], ways[0])[0][0] == 0
    assert others > 5
