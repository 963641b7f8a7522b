"""Running somebody's program to learn what it compiles disturbs it in nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from diode_engine.cli import main
from diode_engine.collect.capture import run
from diode_engine.core.problem import Problem
from diode_engine.problems.sources import problems_in, write_shapeset

PROBLEM = Problem.make("mm", 4, 8, 16, "float16")


def compiles(*notes: dict[str, object]) -> str:
    """A program that writes what the hook would, without the seconds that compiling takes."""
    lines = "\n".join(map(json.dumps, notes)) + "\n"
    return (
        "import os, pathlib\n"
        "folder = pathlib.Path(os.environ['DIODE_REPORT'])\n"
        f"(folder / f'{{os.getpid()}}.jsonl').open('a').write({lines!r})\n"
    )


def product(problem: Problem | None, name: str = "") -> dict[str, object]:
    return {"product": {"name": name, "problem": None if problem is None else problem.to_dict()}}


COMPILES = compiles({"inductor": "2.13"}, *[product(PROBLEM)] * 2)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_children_compile_can_be_collected_and_the_program_s_exit_code_is_ours(
    tmp_path, capfd
):
    out = tmp_path / "shapes.json"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPILES!r}])\n"
    code += "print('its own output'); sys.exit(5)"
    assert main(["capture", "-o", str(out), *python(code)]) == 5
    assert problems_in(out, seed=0) == [PROBLEM]
    shown = capfd.readouterr()
    assert shown.out == "its own output\n"
    assert "1 distinct problems" in shown.err


def test_nothing_compiled_is_said_and_an_earlier_file_kept(tmp_path, capsys):
    out = tmp_path / "shapes.json"
    write_shapeset([PROBLEM], out, "earlier")
    assert main(["capture", "-o", str(out), "--", *python("pass")]) == 3
    assert "compiled nothing" in " ".join(capsys.readouterr().err.split())
    assert problems_in(out, seed=0) == [PROBLEM]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ([sys.executable, "-I", "-c", "pass"], "No Python that Diode is installed in"),
        (["true"], "No Python that Diode is installed in"),
        (python(compiles({"inductor": "2.13"}, product(None, "mm of int4"))), "but mm of int4"),
        (python(compiles({"inductor": "2.13"})), "compiled no product."),
        (python(compiles({"too_old": "2.9"})), "torch 2.9 cannot be watched"),
    ],
)
def test_it_says_why_there_is_nothing(command, says):
    captured = run(command)
    assert captured.problems == ()
    assert says in captured.why_nothing


def test_the_program_finds_its_python_as_it_would_without(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.was_customized = True\n")
    code = (
        "import sys, sitecustomize, logging\n"
        "print(sys.path, sys.was_customized, sitecustomize.__file__,\n"
        "      'torch' in sys.modules, logging.getLogger().handlers)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    plain = subprocess.check_output(python(code), env=environment, text=True)
    watched = subprocess.run(
        [sys.executable, "-m", "diode_engine", "capture", "-o", "x.json", "--", *python(code)],
        env=environment, text=True, cwd=Path(__file__).parents[2], capture_output=True, check=False,
    ).stdout  # fmt: skip
    assert watched.replace(str(tmp_path) + "'", "") == plain.replace(str(tmp_path) + "'", "")


def test_a_signal_ends_the_program_and_keeps_what_was_seen(tmp_path):
    out = tmp_path / "shapes.json"
    waits = f"{COMPILES}print('ready', flush=True)\nimport signal; signal.pause()\n"
    process = subprocess.Popen(
        [sys.executable, "-m", "diode_engine", "capture", "-o", str(out), "--", *python(waits)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2], start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert problems_in(out, seed=0) == [PROBLEM]
