"""What Home and the start of the dashboard need, and what they do not import."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from diode_app.data.overview import model_in_use
from diode_app.screens.run import RunScreen
from diode_engine.store import Store
from tests.app.judged import judge
from tests.app.waiting import press, running, settled, text_of


def run_python(code: str, *arguments: object, **options: object) -> str:
    """What the program prints, in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def test_without_a_gpu_it_does_not_say_that_there_is_no_model():
    """The shipped default of all GPUs is one model."""
    found = model_in_use(None)
    assert not isinstance(found, str)
    assert dict(found)["here"] == "no GPU that it serves"
    assert "(shipped)" in dict(found)["model"]


FORMS = "from diode_app.widgets.command_form import CommandForm; " + "; ".join(
    f"CommandForm({name!r})" for name in ("collect", "train", "validate")
)


@pytest.mark.parametrize(
    ("program", "slow"),
    [
        ("import diode_app.main, diode_app.app, diode_app.screens.home",
         "plotext diode_engine.core.templates diode_app.data.runs numpy torch sqlalchemy xgboost "
         "diode_app.widgets.table"),
        ("import diode_engine.store", "sqlalchemy.dialects.postgresql"),  # its store is in a file
        (FORMS, "torch"),
    ],
    ids=["the start", "a store in a file", "the forms"],
)  # fmt: skip
def test_it_does_not_import(program, slow):
    code = f"{program}\nimport sys\nprint(*set(sys.modules) & set(sys.argv[1:]))"
    assert run_python(code, *slow.split()) == "\n"


def test_a_report_is_read_without_torch(timed, model):
    run, _ = judge(timed, model)
    program = f"""
import sys
from pathlib import Path
from diode_app.data.reports import curves, kinds, report_view
from diode_engine.store import Store
with Store.open(Path(sys.argv[1])) as store:
    view = report_view(store, None, None, None)
assert view.report.run == {run} and view.cases
assert curves(view.report, view.against, kinds(view.report)[-1])
print(*{{"torch", "triton", "xgboost"}} & set(sys.modules))
"""
    assert run_python(program, timed.location) == "\n"


# NO_COLOR, as a terminal sees it


_STYLES = re.compile(rb"\x1b\[([0-9;:]*)m")
_PLAIN = set(b" 0 1 2 3 4 7 9 22 23 24 27 29 39 49".split(b" "))  # the last two: as it comes


@pytest.mark.parametrize("no_color", [True, False])
def test_no_colour_is_written(tmp_path, no_color):
    """Bold, dim, underlined and reversed may be; without NO_COLOR it has colours."""
    store = tmp_path / "diode.db"
    Store.open(store).close()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment.pop("NO_COLOR", None)
    if no_color:
        environment["NO_COLOR"] = "1"
    process, terminal = pty.fork()
    if process == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "diode_app", f"--store={store}"], environment
        )
    written = b""
    try:
        while b"What to do next" not in written:
            written += os.read(terminal, 1 << 16)
        os.write(terminal, b"q")
        while True:
            try:
                written += os.read(terminal, 1 << 16)
            except OSError:  # it has left
                break
    finally:
        os.close(terminal)
        os.waitpid(process, 0)
    styles = {part for found in _STYLES.findall(written) for part in re.split(rb"[;:]", found)}
    assert (styles <= _PLAIN) is no_color, styles


async def test_a_long_reason_opens_on_enter(make_app, store):
    """Home shows one line of it. A promotion that was refused is not done."""
    store.finish_run(store.start_run("train", {}), "failed", "too short, " * 20)
    refused = store.start_run("promote", {})
    store.update_run(refused, progress={"judged": "a@1", "refused": True})
    store.finish_run(refused, "done", "it is slower on many problems, " * 12)
    async with running(make_app(), (80, 24)) as (app, pilot):
        first, *below = text_of(app).split("promote")[1].split("train")
        assert "✗ refused" in first
        assert "✓ done" not in first
        assert below
        await press(pilot, "enter")
        assert isinstance(app.screen, RunScreen)
        assert app.screen.run == refused
        assert "it is slower on many problems" in text_of(app)
        await press(pilot, "escape")
        app.screen.query(".run-says")[1].focus()
        await settled(pilot)
        commands = dict(app.screen.headless_commands())
        assert commands["Open"].startswith("diode-engine runs show 1 ")
        await press(pilot, "enter")
        assert app.screen.run == 1
        assert text_of(app).count("too short") > 5
