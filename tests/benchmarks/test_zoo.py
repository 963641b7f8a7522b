"""The zoo's processes, rows and tables, and small forms of its blocks; no GPU is asked."""

from __future__ import annotations

import copy
import json
import sys
import time
from typing import Any

import pytest


def row(model: str, way: str, **more: Any) -> dict[str, Any]:
    return {
        "model": model, "way": way, "group": "g", "kind": "bfloat16, forward", "error": "",
        "timing": "graph", "step_us": 10.0, "spread": 0.01, "rounds": 9, "compile_s": 1.0,
        "ratio": 1.0, "compile_ratio": 1.0, "error_ratio": 1.0, "step_bytes_ratio": 1.0,
        "compile_bytes_ratio": 1.0, "products": [{}], **more,
    }  # fmt: skip


# What a model's process does here instead of its work.
WORKER = """
import json, os, sys, time
name, ways = sys.argv[1], sys.argv[2].split(",")
print("this is no row")
print(json.dumps({"way": ways[0], "gpu": os.environ["GPU"]}), flush=True)
if name == "crash":
    print("the last words", file=sys.stderr)
    os.abort()
if name == "hang":
    time.sleep(600)
for way in ways[1:]:
    print(json.dumps({"way": way}))
"""


def in_processes(names: list[str], *, limit_s: float = 60, until: float = 60) -> list[Any]:
    from processes import each_in_a_process

    found: list[Any] = []
    each_in_a_process(
        [(name, [sys.executable, "-c", WORKER, name, "plain,import"]) for name in names],
        [{"GPU": "0"}, {"GPU": "1"}],
        lambda name, row: found.append((name, row)),
        limit_s=limit_s,
        until=time.monotonic() + until,
    )
    return found


def test_a_model_that_crashes_ends_no_other():
    found = in_processes(["a", "crash", "b"])
    assert sorted(name for name, row in found if row.get("way") == "import") == ["a", "b"]
    (failed,) = [(name, row["error"]) for name, row in found if "error" in row]
    assert failed[0] == "crash"
    assert "the last words" in failed[1]
    assert ("crash", "plain") in [(name, row.get("way")) for name, row in found]  # it is kept


def test_a_model_that_hangs_is_ended():
    found = in_processes(["hang"], limit_s=1)
    assert [row.get("error", "") for _, row in found if "error" in row] == ["It took over 1 s."]


def test_the_shares_of_a_lock_are_many_and_one_is_alone(tmp_path, monkeypatch):
    import threading

    import torch
    from zoo_measuring import Gpu

    monkeypatch.setenv("ZOO_LOCK", str(tmp_path / "gpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    events: list[str] = []
    with Gpu().shared(), Gpu().shared():

        def alone():
            with Gpu().alone():
                events.append("alone")

        thread = threading.Thread(target=alone)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        events.append("shared")
    thread.join(10)
    assert events == ["shared", "alone"]


def test_times_are_compared_round_by_round(monkeypatch):
    import zoo_measuring
    from replays import Replay
    from zoo_measuring import Compiled, timed

    def made(**more):
        base = {"compile_s": 2.0, "output_error": 1e-3, "step_bytes": 10, "compile_bytes": 0}
        return Compiled({**base, **more}, Replay(lambda: None), graph=True)

    asked: list[int] = []

    def in_turn(ways, rounds, seconds):
        asked.append(rounds)
        slower = 1.1 if len(asked) == 1 else 1.01
        # the clock falls meanwhile, for all alike
        return {n: [(slower if n == "import" else 1) * t for t in (10, 20, 30)] for n in ways}

    monkeypatch.setattr(zoo_measuring, "in_turn", in_turn)
    rows = timed({"plain": made(), "import": made(compile_s=1.0, output_error=2e-3)})
    assert asked == [zoo_measuring.ROUNDS, zoo_measuring.AGAIN_ROUNDS]  # 1.1 is measured again
    assert rows["import"]["ratio"] == pytest.approx(1.01)
    assert rows["import"]["first_ratio"] == pytest.approx(1.1)
    assert rows["import"]["compile_ratio"] == 0.5
    assert rows["import"]["error_ratio"] == 2
    assert rows["import"]["compile_bytes_ratio"] == 1  # of nothing and nothing
    asked.clear()
    asked.append(0)
    timed({"plain": made(), "import": made()})
    assert asked == [0, zoo_measuring.ROUNDS]  # 1.01 is not


@pytest.mark.parametrize(
    ("times", "compiles", "counts"),
    [
        # over plain's first compile, but not over its second one
        ({"plain": 10.0, "again": 11.0, "import": 11.1}, 1, 11.1 / 11.0),
        # over both; Diode's second compile is not
        ({"plain": 10.0, "again": 11.0, "import": 12.0, "import again": 11.1}, 2, 11.1 / 11.0),
        ({"plain": 11.0, "again": 10.0, "import": 12.0, "import again": 13.2}, 2, 12.0 / 11.0),
    ],
)
def test_slower_is_over_both_plain_compiles_by_both_of_diodes(
    times, compiles, counts, tmp_path, monkeypatch, capsys
):
    import torch
    import zoo_measuring
    import zoo_report
    from replays import Replay
    from zoo_measuring import Bench, Compiled
    from zoo_models import ZOO
    from zoo_ways import WAYS

    asked: list[Any] = []

    def compiled(bench, way):
        asked.append(way)
        figures = {"compile_s": 1.0, "output_error": None, "step_bytes": 1, "compile_bytes": 1}
        return Compiled(figures, Replay(lambda: None), graph=True)

    model = ZOO["odd-mlp"]
    monkeypatch.delenv("ZOO_LOCK", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "no GPU")
    monkeypatch.setattr(
        zoo_measuring, "make_bench", lambda model: Bench(model, torch.nn.Identity(), [])
    )
    monkeypatch.setattr(zoo_measuring, "warm_up", lambda ways: None)
    monkeypatch.setattr(zoo_measuring, "compiled", compiled)
    monkeypatch.setattr(zoo_measuring, "in_turn", lambda ways, *_: {n: [times[n]] for n in ways})
    rows: list[dict[str, Any]] = []
    zoo_measuring.measure(model, ["plain", "import"], rows.append)
    assert sum(way == WAYS["import"] for way in asked) == compiles
    assert len(asked) == 2 + compiles  # plain's two
    assert [r["way"] for r in rows] == ["plain", "again", "import"]
    assert rows[2]["ratio"] == pytest.approx(times["import"] / times["plain"])
    assert zoo_report.over_plain(rows[2]) == pytest.approx(counts)
    zoo_report.print_tables([{"model": "odd-mlp", **r} for r in rows])
    assert ("Slower than plain" in capsys.readouterr().out) == (counts > zoo_report.MIN_SHARE)


def test_an_error_is_of_what_matters():
    import torch
    from zoo_measuring import _error

    exact = [torch.tensor([3.0, 4.0]).double(), torch.tensor([1e-9]).double(), None]
    outs = [torch.tensor([3.0, 4.5]), torch.tensor([1.0]), torch.tensor([1.0])]
    assert _error(outs, exact) == pytest.approx(0.1)
    assert _error(outs, None) is None


def test_a_row_is_resumed_and_a_process_that_ended_is_tried_again(tmp_path):
    import zoo
    import zoo_report

    file = tmp_path / "zoo.jsonl"
    rows = zoo.Rows(file)
    rows.add(row("dlrm", "plain"))
    rows.add(row("dlrm", "import", error="RuntimeError: no"))
    rows.add({"model": "odd-mlp", "error": "The process ended with -9: "})
    file.write_text(file.read_text() + '{"model": "two-to')  # cut off
    again = zoo.Rows(file)
    assert len(again.rows) == 3
    done = zoo_report.finished(again.rows)
    tasks = zoo._tasks(
        [zoo.ZOO[n] for n in ("dlrm", "odd-mlp")], ["plain", "import", "fast"], done, "measure"
    )
    assert [(name, command[-1]) for name, command in tasks] == [
        ("dlrm", "plain,fast"),
        ("odd-mlp", "plain,import,fast"),
    ]
    again.add(row("two-tower", "plain"))  # behind the line that was cut off
    assert zoo.Rows(file).rows[-1]["model"] == "two-tower"


@pytest.mark.parametrize("markdown", [False, True])
def test_the_report_has_ratios_and_what_failed(markdown, tmp_path, capsys):
    import zoo_report

    rows = [
        row("a", "plain", step_us=100.0),
        row("a", "import", ratio=0.5, compile_ratio=2.0),
        row("b", "plain", step_us=10.0),
        row("b", "import", ratio=2.0, error_ratio=3.0, products=[]),
        row("b", "fast", error="RuntimeError: no such kernel\nand more"),
        {"model": "c", "error": "The process ended with -6: "},
    ]
    file = tmp_path / "zoo.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    zoo_report.show(file, markdown=markdown)
    said = capsys.readouterr().out
    cells = [line.replace("|", " ").split() for line in said.splitlines()]
    assert ["a", "bfloat16,", "forward", "100.0", "0.500", "2.00", "1.00", "1.00"] in cells
    (way,) = [line for line in cells if line[:1] == ["import"]]
    assert way[1:6] == ["2", "1.000", "0.500", "2.000", "b"]  # models, all, choosing, worst
    slower = said[said.index("Slower than plain") :]
    assert "b " in slower.splitlines()[2 if markdown else 1]
    assert "no such kernel" in said
    assert "The process ended with -6" in said


def test_the_report_of_lowered_programs_says_what_differs_and_what_failed(tmp_path, capsys):
    import zoo_report

    kernels = {"poi": 3, "mm": 2}
    lowered = {"error": "", "kernels": kernels, "products": 2, "stats": {"fallbacks": 0}}
    rows = [
        {"model": "a", "way": "plain", **lowered},
        {"model": "a", "way": "import", **lowered, "error": "RuntimeError: no"},  # done again below
        {"model": "a", "way": "import", **lowered, "kernels": {"poi": 4, "mm": 2}},
        {"model": "b", "way": "plain", **lowered, "error": "ValueError: no inputs\nand more"},
        {"model": "b", "way": "import", **lowered, "error": "ValueError: no inputs"},
        {"model": "c", "way": "", "error": "The process ended with -9."},
    ]
    file = tmp_path / "zoo.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    zoo_report.show(file, markdown=False)
    assert capsys.readouterr().out.splitlines() == [
        "3 models: {'plain': 2, 'import': 2, '': 1}",
        "a, import: 4 poi, stock has 3",
        "b, plain: ValueError: no inputs",
        "c, plain: The process ended with -9.",
    ]


@pytest.mark.parametrize("name", ["experts", "float8", "int8", "training"])
def test_blocks_of_8_bits_and_of_experts_compute_what_their_reference_does(name):
    """Small ones, without compiling, beside the same in float64."""
    import torch
    from zoo_models import eight_bit, experts

    makers = {
        "experts": lambda: experts.Block(
            128, experts.LatentAttention(128, 4, 64, 32, 32, 16),
            experts.Experts(128, 64, 8, 2, shared=True),
        ),
        "float8": lambda: eight_bit.Float8(128, 64, by_row=False),
        "int8": lambda: eight_bit.Int8(128, 64),
        "training": lambda: eight_bit.Float8Training(128, 64, bias=False),
    }  # fmt: skip
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        net, x = makers[name](), torch.randn(1, 64, 128)
    finally:
        torch.set_default_dtype(before)
    found: list[list[torch.Tensor]] = []
    for module, given in ((net, x), (copy.deepcopy(net).double(), x.double())):
        out = module(given)
        if name == "training":
            (out * out.detach()).sum().backward()
        found.append([out, *(p.grad for p in module.parameters() if p.grad is not None)])
    for ours, exact in zip(*found, strict=True):
        assert (ours.double() - exact).norm() < 0.1 * exact.norm()
    assert len(found[0]) == (2 if name == "training" else 1)


@pytest.mark.parametrize(
    ("reason", "found"), [("no_prediction", 0), ("unsupported", 0), ("error", 1), ("no_hint", 1)]
)
def test_only_what_is_documented_may_be_left_to_inductor(reason, found):
    import zoo_report

    said = (
        "diode_engine.choosing.outcomes: Diode makes no choice for some products: the model "
        f"has no prediction for mm #×# ({reason}; logged once, counted in "
        "diode_engine.get_stats())."
    )
    assert len(zoo_report.wrong(row("a", "import", warnings=[said]))) == found
