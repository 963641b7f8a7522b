"""diode-engine demo on a small made-up dataset: through the store, the registry and Inductor."""

import itertools
import os
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from diode_engine import features, paths, registry
from diode_engine.choosing.policy import MARGIN
from diode_engine.cli import ExitCode, main
from diode_engine.cli.demo import NEXT
from diode_engine.cli.group import COMMANDS
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.demo import child, tables
from diode_engine.errors import IntegrationError
from diode_engine.models.predictor import Predictor
from diode_engine.problems.spaces import default_space
from diode_engine.problems.splits import is_held_out_by_size
from diode_engine.store import RunState, Store, write_dataset
from tests.samples import table_of, tile

ENVIRONMENT = Environment(H200, "570", "2.13.0", "3.7.1")
OPS = ("mm", "addmm", "bmm", "baddbmm")


def problems():
    rng = np.random.default_rng(5)
    return [
        Problem.make(
            op, *(16 * int(2**v) for v in rng.uniform(1, 7, 3)), "bfloat16",
            B=4 if op.startswith("b") else 1, b_layout="col",
        )
        for op in OPS
        for _ in range(25)
    ]  # fmt: skip


def candidates(problem):
    template = "triton::bmm" if problem.op.batched else "triton::mm"
    tiles = itertools.product((16, 64, 128), (32, 64, 128), (32, 64), ((2, 4), (3, 8)))
    return [
        # the call with the bias as it is, which torch 2.13 offers alone
        Candidate.make("aten::bias_addmm" if problem.op == "addmm" else f"aten::{problem.op}"),
        *(tile(m, n, k, s, w, template) for m, n, k, (s, w) in tiles),
    ]


def made_up(asked):
    """Times by the features' roofline, all a tenth slower."""
    tables = []
    for problem in asked:
        offered = candidates(problem)
        us = 1.1 * 2 ** features.space(problem, offered, H200).base
        tables.append(table_of([problem], offered, us, ENVIRONMENT))
    return TimingTable.joined(tables)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """What Diode ships, instead of its own; the working directory is another empty one."""
    folder, work = tmp_path / "shipped", tmp_path / "work"
    (folder / "datasets" / "nvidia-h200").mkdir(parents=True)
    work.mkdir()
    monkeypatch.setattr(paths, "shipped_dir", lambda: folder)
    monkeypatch.chdir(work)
    return folder


def test_the_whole_of_it(shipped, diode_home, capsys, monkeypatch):
    """Everything is real but the timings; Inductor is asked in a process of its own."""
    table = made_up(problems())
    write_dataset(table, shipped / "datasets" / "nvidia-h200" / "a.msgpack.zst")
    seen = []
    describe = tables.describe_choices

    def recorded(problems, answers, known):
        seen.extend(zip(problems, answers, strict=True))
        return describe(problems, answers, known)

    monkeypatch.setattr(tables, "describe_choices", recorded)
    # hidden in all its processes: with a GPU it would be timed, which takes minutes
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["demo"]) == ExitCode.OK
    out, err = capsys.readouterr()

    assert [step for step in "12345" if f"\n{step}. " in f"\n{err}"] == list("12345")
    assert f"{len(table)} timings" in err
    assert "registered as demo@1" in err
    assert "There is no GPU like the NVIDIA H200 here" in err
    assert "max-autotune DEFAULT" in out  # the table of choosers
    assert out.count("Diode's choice") == out.count("DEFAULT's best") == 1
    closing = out[out.rindex("problems that it has not seen, demo@1's choices are at") :]
    assert "ATen's at" in closing
    assert "kernels for each" in closing
    assert all(words.format(store=".demo/diode.db") in closing for words in NEXT)

    assert len(seen) == 5
    assert {str(problem.op) for problem, _ in seen} == set(OPS)
    monkeypatch.setenv("DIODE_HOME", str(Path(".demo")))
    predictor = Predictor.load(registry.resolve("demo@1").folder)
    choices = out[out.index("Diode's choice") :].splitlines()
    for problem, answer in seen:
        assert is_held_out_by_size(problem)
        chosen = Candidate.from_dict(answer["chosen"])
        default = default_space(problem, "2.13.0")
        # what the compile predicted is what the model says here
        (us,) = predictor.predict_us(problem, [chosen])
        assert answer["predicted_us"] == pytest.approx(us, rel=1e-4)
        # the library's goes before another that is faster by less than the margin
        most = np.nanmin(predictor.predict_us(problem, default)) * MARGIN
        assert us <= most * (1 + 1e-4)
        (row,) = (line for line in choices if line.startswith(str(problem)))
        assert f" {us:.1f} " in row
        best = table.time_us[table.problem == table.problems.index(problem)].min()
        assert row.endswith(f" {best:.1f}")

    assert not (diode_home / "models").exists()  # its models are not among the user's
    assert registry.best_for(H200).model == registry.resolve("demo@1")  # type: ignore[union-attr]
    with Store.open(Path(".demo", "diode.db")) as store:
        assert [run.kind for run in store.runs()] == ["import", "train"]
        assert all(run.state is RunState.DONE for run in store.runs())


@pytest.mark.parametrize("words", list(NEXT))
def test_the_commands_that_it_names_are_there(words):
    name, *rest = words.split()
    options = {option for param in COMMANDS[name].load(name).params for option in param.opts}
    named = rest[: rest.index("--")] if "--" in rest else rest
    assert {word for word in named if word.startswith("-")} <= options


def test_where_it_cannot_make_its_folder_it_says_so(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(".demo").write_text("no folder")
    run("demo").says(1, "in .demo, which cannot be made here")


def test_without_shipped_timings_it_says_so(run, shipped):
    run("demo").says(1, "There are no shipped timings in")


def test_one_problem_of_each_op_is_picked_and_none_that_is_not_asked_for():
    asked = [
        *problems(),
        Problem.make("mm", 1, 512, 512, "bfloat16"),  # Inductor makes a sum of it
        Problem.make("mm", 2, 512, 512, "float16", out_dtype="float32"),
        Problem.make("mm", 3, 512, 512, "float16"),
    ]
    table = made_up(asked)
    picked = tables.pick_problems(table)
    assert [str(problem.op) for problem in picked[:4]] == list(OPS)
    assert picked[4] == asked[-1]
    assert tables.pick_problems(table.take(np.arange(len(table))[::-1])) == picked
    assert len(tables.pick_problems(made_up(problems()[:3]))) == 3


def test_what_was_measured_on_a_gpu_is_compared():
    asked = [Problem.make("mm", m, 256, 512, "bfloat16") for m in (64, 128)]
    stock = [{"us": 8.0, "compile_s": 6.0, "right": True}] * 2
    diode = [
        {"eager_us": 10.0, "us": 4.0, "compile_s": 1.0, "right": True, "chosen_by_model": True},
        {"eager_us": 40.0, "us": 4.0, "compile_s": 2.0, "right": False, "chosen_by_model": False},
    ]
    *_, first, second, last = tables.describe_timings("H200", asked, stock, diode).splitlines()
    assert "WRONG" not in first
    assert "not chosen by the model" in second
    assert "WRONG RESULT" in second
    assert "5.00 times as fast as eager's and 2.00 times as fast as DEFAULT's" in last
    assert "4.0 times as fast" in last


@pytest.fixture
def module(tmp_path):
    """A module that can be asked, in a folder for PYTHONPATH."""
    text = """
        import sys
        from diode_engine.errors import ModelError

        def answer(question):
            print("noise")
            for number in question["numbers"]:
                if number < 0:
                    raise ModelError("No number is negative.")
                yield {"half": 60 / number}
    """
    (tmp_path / "asked.py").write_text(textwrap.dedent(text))
    return tmp_path


def test_a_process_answers_line_by_line(module):
    def ask(*numbers):
        question = {"numbers": numbers}
        place = {"PYTHONPATH": os.pathsep.join((str(module), *sys.path))}
        return list(child.ask("asked:answer", question, log=module / "log", environment=place))

    assert ask(2, 3) == [{"half": 30}, {"half": 20}]
    assert (module / "log").read_text() == "noise\n"  # and not among the answers
    with pytest.raises(IntegrationError, match=r"^No number is negative\.$"):
        ask(2, -1)
    with pytest.raises(IntegrationError, match=r"status 1; what it said is in .*log"):
        ask(2, 0)
    assert "ZeroDivisionError" in (module / "log").read_text()
