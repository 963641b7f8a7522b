"""diode-engine report: what it says, its exit codes, and what it does to files."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from diode_engine.cli import main
from diode_engine.core.problem import Problem
from diode_engine.reports import record

PROBLEM = Problem.make("mm", 64, 64, 512, "bfloat16")


def product(node: str, **fields: Any) -> dict[str, Any]:
    """What a process notes of a product, without the seconds that compiling takes."""
    return {
        "at": [0, node],
        "product": {
            "name": str(PROBLEM), "problem": PROBLEM.to_dict(), "dynamic": False,
            "device": "cuda", "phase": "inference", "mode": "default", "module": "<b>layers.0</b>",
            "kind": "Linear", "file": "model.py", "line": 3, "code": "x @ w", **fields,
        },
    }  # fmt: skip


def diode(**parts: str) -> dict[str, Any]:
    return {
        "diode": {"active": False, "reason": "no GPU", "fingerprint": {"key": "0", "parts": parts}}
    }


def program(*processes: list[dict[str, Any]], then: str = "") -> list[str]:
    """A command whose processes write these notes."""
    texts = ["\n".join(map(json.dumps, notes)) + "\n" for notes in processes]
    code = (
        "import os, pathlib\nfolder = pathlib.Path(os.environ['DIODE_REPORT'])\n"
        f"for number, text in enumerate({texts!r}):\n"
        "    (folder / f'process{number}.jsonl').write_text(text)\n"
        f"{then}"
    )
    return ["report", "--", sys.executable, "-c", code]


COMPILES = [{"inductor": "2.13"}, diode(), product("a"), product("b", module="layers.1")]


def test_the_table_goes_to_stdout_and_the_report_is_kept(run):
    ran = run(*program(COMPILES))
    assert ran.code == 0
    assert "mm 64×64×512 bfloat16" in ran.out
    assert "2 products of 1 problem" in ran.out
    (path,) = record.list_reports()
    assert str(path) in ran.err.replace("\n", "")
    assert record.read(path).products[0].count == 2


def test_a_report_that_cannot_be_kept_is_shown(run):
    record.folder().parent.mkdir(parents=True, exist_ok=True)
    record.folder().write_text("a file in the place of the folder")
    ran = run(*program(COMPILES, then="raise SystemExit(7)"))
    assert (ran.code, "2 products of 1 problem" in ran.out) == (7, True)
    assert "Warning: The report is not kept: " in ran.err


def test_the_exit_code_is_the_program_s_and_with_json_its_output_is_on_stderr(capfd):
    name, *words = program(COMPILES, then="print('its own output')\nraise SystemExit(5)")
    assert main([name, "--json", *words]) == 5
    out, err = capfd.readouterr()
    assert "its own output" in err
    made = record.Report.from_dict(json.loads(out))
    assert made == record.read(record.list_reports()[0])
    assert (made.exit_code, [p.count for p in made.products]) == (5, [2])


def test_a_cut_note_of_a_killed_process_is_left_out(run):
    cut = "(folder / 'process0.jsonl').open('a').write('{\"at\": [0, \"c\"], \"prod')"
    ran = run(*program(COMPILES, then=cut))
    assert "2 products" in ran.out


def test_nothing_compiled_is_said_and_nothing_kept(run):
    run("report", "--", sys.executable, "-c", "pass").says(3, "compiled nothing")
    assert record.list_reports() == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--", "no-such-program"], 1, "no-such-program cannot be started"),
        ([], 2, "Give a program, or --file FILE."),
        (["--hardware", "NVIDIA Nothing", "--", "true"], 3, "of the GPUs that Diode knows"),
        (["--html", "no/folder.html", "--", "true"], 1, "no folder no"),
    ],
)
def test_a_mistake_is_a_sentence(run, words, code, says):
    run("report", *words).says(code, says)


def test_processes_that_choose_by_something_else_are_named(run):
    first, second = ([{"inductor": "2.13"}, diode(model=m), product("a")] for m in ("one", "two"))
    ran = run(*program(first, second))
    assert "Process 1 has another fingerprint than process 0: model two, not one." in " ".join(
        ran.out.split()
    )


def test_the_page_escapes_what_a_program_says(run, tmp_path):
    page = tmp_path / "page.html"
    command = program(COMPILES)
    assert run(command[0], "--html", page, *command[1:]).code == 0
    assert "&lt;b&gt;layers.0&lt;/b&gt;" in page.read_text()
    assert "<b>" not in page.read_text()
