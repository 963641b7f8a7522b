"""What holds of every command: help, wrong use, the options that all have, JSON, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import click
import pytest

from diode_engine.cli import collect, settings
from diode_engine.cli.group import COMMANDS
from diode_engine.problems import sources
from diode_engine.runs import KINDS
from diode_engine.store import Store
from tests.cli.conftest import every_command

EVERY = dict(every_command())
# What is asked of them needs no timings, or is not told as data.
WITHOUT_STORE = {
    "capture", "completion", "data merge", "data verify", "db copy", "explain", "freeze",
    "models alias", "models compare", "models export", "models import", "models list",
    "models note", "models register", "models remove", "models rollback", "models show",
    "models tag", "models verify", "predict", "report", "workflow",
}  # fmt: skip
WITHOUT_JSON = {"capture", "completion", "demo", "freeze", "serve"}
DRAWING = {
    "collect", "collect-shapeset", "create-validation", "draw-problems", "train",
    "collect-and-train", "tune",
}  # fmt: skip

each = pytest.mark.parametrize("words", list(EVERY))


def options(words):
    return {name for param in EVERY[words].params for name in param.opts}


@each
def test_help_goes_to_stdout(run, words):
    shown = run(*words.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: diode-engine {words} ")
    for param in EVERY[words].params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help, param.name
            assert param.opts[0] in shown.out


@each
def test_wrong_use_exits_with_2_and_nothing_on_stdout(run, words):
    wrong = run(
        *words.split(), *([] if words in ("capture", "freeze", "report") else ["--no-such-option"])
    )
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith(f"Usage: diode-engine {words} ")
    assert "Error: " in wrong.err


@pytest.mark.parametrize("words", sorted(DRAWING))
def test_a_seed_that_nothing_can_be_drawn_with_is_refused(run, words):
    file = ["a.json"] if words in ("collect-shapeset", "draw-problems") else []
    run(*words.split(), *file, "--seed", "-1").says(2, "-1 is not in the range")


@each
def test_the_options_that_all_have(words):
    assert ({"--store", "--db"} <= options(words)) is (words not in WITHOUT_STORE)
    assert ("--json" in options(words)) is (words not in WITHOUT_JSON)
    assert ("--seed" in options(words)) is (words in DRAWING)


def defaults(words, said):
    top, *below = words.split()
    made = settings.default_map(said, COMMANDS[top].load(top), top)
    for name in below:
        made = made[name]
    return made


@each
def test_every_option_has_its_name_in_files_and_variables(words, monkeypatch):
    top, *below = words.split()
    said: dict[str, Any] = {}
    table = said.setdefault(top, {})
    for name in below:
        table = table.setdefault(name, {})
    flags = [p for p in EVERY[words].params if isinstance(p, click.Option) and p.expose_value]
    table |= {param.opts[0].lstrip("-"): 7 for param in flags}
    expected = {param.name for param in flags if param.envvar is None}
    assert expected <= set(defaults(words, said))
    assert expected.isdisjoint(defaults(words, {}))
    for param in flags:
        variable = f"DIODE_{words}_{param.opts[0].lstrip('-')}"
        monkeypatch.setenv(variable.replace(" ", "_").replace("-", "_").upper(), "1")
    assert expected <= set(defaults(words, {}))


def test_the_choices_of_options_are_those_of_what_they_choose():
    assert tuple(sources.SOURCES) == collect.SOURCES
    assert set(KINDS) <= set(COMMANDS)


READERS = {
    "data export": "out.json", "data map": "", "data problems": "", "data show": "1",
    "data stats": "", "db backup": "b.db", "db check": "", "db query": "VALUES(1)",
    "db upgrade": "", "db vacuum": "",
    "models promote": "tripled", "runs cancel": "1", "runs follow": "1", "runs list": "",
    "runs note": "1 x", "runs resume": "1", "runs show": "1", "runs tag": "1 x",
    "runs untag": "1 x", "train": "", "validate": "", "validate-model": "",
}  # fmt: skip


@pytest.mark.parametrize("words", READERS)
def test_a_missing_store_exits_with_3(run, words, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("models", "register", model)
    none = tmp_path / "none.db"
    asked = run(*words.split(), *READERS[words].split(), "--db", none)
    asked.says(3, f"There is no store at {none}")
    assert not list(tmp_path.glob("none.db*"))


def test_stdout_is_json_of_each_that_reads(run, dataset, model, tmp_path, nothing_shipped):
    store = tmp_path / "a.db"
    run("data", "import", dataset, "--store", store)
    with Store.open(store) as opened:
        ended = opened.start_run("collect", {})
        opened.finish_run(ended, "done")
    run("models", "register", model)
    of_store = (
        "data map", "data problems", "data show 1", "data stats", "runs list", "doctor",
        f"data export {tmp_path}/o.json", "validate --all", f"runs show {ended}",
        f"draw-problems {tmp_path}/v.json --problems 3", f"runs follow {ended}",
        f"create-validation --output {tmp_path}/w.json --plan",
        f"runs tag {ended} x", f"runs untag {ended} x", f"runs note {ended} x", "db check",
        "db upgrade", "db vacuum", f"db backup {tmp_path}/b.db", "collect --plan --problems 3",
        f"collect-shapeset {dataset} --plan",
    )  # fmt: skip
    others = (
        f"data verify {dataset}", f"data merge {dataset} --output {tmp_path}/m.json",
        f"predict {dataset}", "explain mm 64 64 512 --dtype bf16", "models list",
        "models show tripled", "models compare tripled tripled", "models verify",
        "models tag tripled x", "models note tripled x", "models alias candidate tripled",
        f"models export tripled {tmp_path}/t.zip",
    )  # fmt: skip
    for asked in (*(f"{words} --db {store}" for words in of_store), *others):
        ran = run(*asked.split(), "--json")
        assert ran.code == 0 or asked.startswith("doctor"), (asked, ran.err)
        lines = [ran.out] if ran.out.startswith(("[", "{\n")) else ran.out.splitlines()
        assert lines, asked
        for line in lines:
            json.loads(line)


@pytest.mark.parametrize(
    ("shell", "typed", "expected"),
    [
        ("bash", "diode-engine trai", "plain,train"),
        ("zsh", "diode-engine data ver", "verify"),
        ("fish", "--model-type bo", "boosted"),
    ],
)
def test_a_shell_completes(run, shell, typed, expected):
    words = typed if shell != "fish" else "diode-engine train --model-type"
    asked = {
        "_DIODE_ENGINE_COMPLETE": f"{shell}_complete", "COMP_WORDS": words,
        "COMP_CWORD": "bo" if shell == "fish" else str(len(words.split()) - 1),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "diode_engine"],
        env={**os.environ, **asked}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert expected in done.stdout, done.stderr
    script = run("completion", shell)
    assert f"_DIODE_ENGINE_COMPLETE={shell}_complete" in script.out
