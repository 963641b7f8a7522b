"""The command's frame: help, exit codes, and what is said where."""

import json
import logging
import os
import signal
import subprocess
import sys
import types
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from diode_engine.cli import ExitCode, diagnostics, main, options, plain_progress
from diode_engine.cli.group import COMMANDS, CommandEntry
from diode_engine.errors import NoSuchRunError, StoreError
from diode_engine.version import __version__
from tests.cli.conftest import Ran


@pytest.fixture
def command(monkeypatch):
    """Makes a function the subcommand `tried`."""

    def register(function):
        module = types.ModuleType("tried_command")
        module.tried = click.command(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "diode_engine.cli.tried", module)
        monkeypatch.setitem(COMMANDS, "tried", CommandEntry("tried", "Tried here."))

    return register


def test_options_of_a_command_may_come_before_it(command, capsys, monkeypatch):
    def tried(seed):
        click.echo(seed)

    command(click.option("--seed", type=int, default=1)(tried))
    monkeypatch.setenv("DIODE_TRIED_SEED", "5")
    monkeypatch.setenv("DIODE_SEED", "6")  # of no command
    for words, seed in (((), 5), (("--seed", "42"), 42)):
        assert main([*words, "tried"]) == ExitCode.OK
        assert main([*words, "tried", "--seed", "7"]) == ExitCode.OK
        assert capsys.readouterr() == (f"{seed}\n7\n", "")
    assert main(["--format", "msgpack", "--device", "cuda", "tried"]) == ExitCode.OK
    said = capsys.readouterr().err
    assert "--format changes nothing: a file's suffix says its format." in said
    assert "--device changes nothing: collect has --gpu" in said
    assert main(["--format", "csv", "tried"]) == ExitCode.USAGE


def test_help_lists_every_command_and_imports_none():
    code = (
        "import json, sys; from diode_engine.cli import main; code = main(['--help']);"
        "json.dump([code, sorted(sys.modules)], sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, loaded = json.loads(shown.stderr)
    assert exit_code == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown.stdout
        assert entry.help in " ".join(shown.stdout.split())
        assert f"diode_engine.cli.{entry.module}" not in loaded
    assert not {"torch", "numpy", "sqlalchemy", "xgboost", "rich", "msgpack"} & set(loaded)


def test_version_is_one_line_on_stdout(run):
    assert run("--version") == Ran(ExitCode.OK, f"diode-engine {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [("--no-such-option", "No such option"), ("trian", "Did you mean 'train'?"), ("", "")],
)
def test_wrong_use_exits_with_2_and_leaves_stdout_alone(run, words, says):
    run(*words.split()).says(ExitCode.USAGE, "Usage: diode-engine", says)


def test_a_command_whose_library_is_missing_says_which(monkeypatch, run):
    monkeypatch.setitem(COMMANDS, "tried", CommandEntry("no_such_library", "Tried here."))
    run("tried").says(ExitCode.FAILURE, "no_such_library, which is not installed")


def test_a_command_whose_extra_is_missing_says_how_to_install_it(monkeypatch, run):
    @click.command()
    def tried():
        import optuna  # noqa: F401

    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(CommandEntry, "load", lambda self, name: tried)
    run("doctor").says(ExitCode.FAILURE, "needs the package optuna", "'diode-engine[train]'")


def failing(error):
    def tried():
        diagnostics.note("Reading [1/2] 'x'.")
        raise error

    return tried


@pytest.mark.parametrize(
    ("function", "code", "err"),
    [
        (lambda: click.echo("us"), ExitCode.OK, "--seed changes nothing: tried draws nothing.\n"),
        (lambda: ExitCode.FAILURE, ExitCode.FAILURE, ""),
        (failing(StoreError("x.db is locked.")), ExitCode.FAILURE, "Error: x.db is locked.\n"),
        (failing(NoSuchRunError("No run 7.")), ExitCode.NOTHING, "Error: No run 7.\n"),
        (failing(KeyboardInterrupt()), ExitCode.INTERRUPTED, "Interrupted.\n"),
    ],
)
def test_how_a_command_ends(command, run, diode_home, function, code, err):
    command(function)
    ran = run("--seed", "3", "tried")
    assert (ran.code, ran.out) == (code, "us\n" if code == ExitCode.OK else "")
    assert ran.err.endswith(err)
    assert ("Reading [1/2] 'x'.\n" in ran.err) == (function.__name__ == "tried")
    assert not diode_home.exists()
    quiet = run("-q", "--seed", "3", "tried")
    assert quiet.err.strip() == (err.strip() if err.startswith("Error") else "")


def test_an_unexpected_error_is_a_sentence_and_a_traceback_in_the_log(
    command, run, diode_home, monkeypatch
):
    command(failing(ZeroDivisionError("by nought")))
    assert "Traceback" in run("--debug", "tried").err
    with monkeypatch.context() as debug:
        debug.setenv("DIODE_DEBUG", "1")
        assert "Traceback" in run("tried").err
    assert not diode_home.exists()
    ran = run("-q", "tried")
    log = diode_home / "errors.log"
    assert (ran.code, ran.err.count("\n")) == (ExitCode.FAILURE, 1)
    assert "ZeroDivisionError: by nought" in ran.err
    assert str(log) in ran.err
    assert "Traceback" in log.read_text(encoding="utf-8")
    assert "['-q', 'tried']" in log.read_text(encoding="utf-8")
    log.unlink()
    log.mkdir()  # so that it cannot be written
    assert "Traceback" in run("tried").err


TRIED = """
import signal, sys, types, click
from diode_engine.cli import main
from diode_engine.cli.group import COMMANDS, CommandEntry
def wait():
    try:
        print('ready', flush=True)
        signal.pause()
    finally:
        print('kept', flush=True)
def wait_and_put_in_order():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        wait()
    finally:
        signal.sigwait({signal.SIGUSR1})
        print('in order', flush=True)
def put(text):
    return lambda: click.echo(text)
def put_lines(number):
    def write():
        sys.stdin.read()
        for _ in range(number):
            sys.stdout.write('line\\n')
    return write
module = sys.modules['diode_engine.cli.tried'] = types.ModuleType('tried')
module.tried = click.command('tried')(HERE)
COMMANDS['tried'] = CommandEntry('tried', '')
sys.exit(main(['tried']))
"""


@contextmanager
def started(function, before="", **options):
    """A process that runs the command `tried`, made of this function of TRIED."""
    with subprocess.Popen(
        [sys.executable, "-c", before + TRIED.replace("HERE", function)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    ) as process:  # fmt: skip
        yield process


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_in_order(sent):
    with started("wait") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "kept\n")
    assert "Traceback" not in err


def test_impatient_signals_do_not_disturb_what_puts_things_in_order():
    with started("wait_and_put_in_order") as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "kept\n"
        for impatient in (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            process.send_signal(impatient)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "in order\n")
    assert "Traceback" not in err


def test_under_nohup_a_closed_terminal_ends_nothing():
    with started("wait", "import signal; signal.signal(1, signal.SIG_IGN)\n") as process:
        assert process.stdout.readline() == "ready\n"
        ignored = Path(f"/proc/{process.pid}/status").read_text().partition("SigIgn:\t")[2][:16]
        assert int(ignored, 16) & 1 << (signal.SIGHUP - 1)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED


FULL = "Error: The output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    ("function", "stdout", "says"),
    [
        ("put('x')", ">/dev/full", FULL),  # met at the end
        ("put('x' * 100_000)", ">/dev/full", FULL),  # and in the middle
        ("wait", ">&-", "Error: There is no stdout;"),  # nothing is begun
    ],
)
def test_a_stdout_that_cannot_be_written_is_a_sentence(function, stdout, says):
    program = [sys.executable, "-c", TRIED.replace("HERE", function)]
    command = ["sh", "-c", f'exec "$@" {stdout}', "sh", *program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stderr.startswith(says)
    assert ran.returncode == ExitCode.FAILURE


def test_a_terminal_without_the_letters_is_no_error():
    ran = subprocess.run(
        [sys.executable, "-c", TRIED.replace("HERE", "put('2 × 3 … 漢 é')")],
        env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
        capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "2 × 3 ? ? é\n".encode("latin-1"))


@pytest.mark.parametrize("lines", [1, 100_000])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_met_in_silence(lines, unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with started(f"put_lines({lines})", env=environment) as process:
        process.stdout.close()
        process.stdin.close()  # only now it writes
        assert process.stderr.read() == ""
    assert process.returncode == ExitCode.FAILURE


def test_progress_without_a_terminal_is_a_line_now_and_then(command, capsys, monkeypatch):
    clock = iter([0.0, 10.0, 31.0, 60.0, 92.0, 120.0, 500.0])
    timer = types.SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(plain_progress, "time", timer)

    def tried():
        with diagnostics.progress() as display:
            task = display.add_task("reading", total=8)
            done = display.add_task("counting", total=3)
            for _ in range(3):
                display.advance(task)
            display.update(task, completed=7, description="writing")
            display.update(done, completed=3)
            display.update(task, completed=8)

    command(tried)
    assert main(["tried"]) == ExitCode.OK
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "reading: 2 of 8", "counting: 0 of 3",  # after 31 s
        "writing: 7 of 8",  # a minute later, without what has not gone on
        "writing: 8 of 8", "counting: 3 of 3",
    ]  # fmt: skip


def test_quiet_leaves_only_errors(command, run):
    def tried():
        diagnostics.warn("Odd.")
        logging.getLogger("diode_engine.tried").warning("Odd, says the log.")
        assert diagnostics.progress().disable
        raise StoreError("The store is gone.")

    command(tried)
    assert run("-q", "tried").err == "Error: The store is gone.\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [([], ["warning"]), (["-v"], ["info", "warning"]), (["-vv"], ["debug", "info", "warning"])],
)
def test_verbose_shows_more_of_the_log(options, said, command, capsys):
    def tried():
        log = logging.getLogger("diode_engine.tried")
        for level in ("debug", "info", "warning"):
            getattr(log, level)(f"a {level}")

    command(tried)
    assert main([*options, "tried"]) == ExitCode.OK
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{level.upper()} diode_engine.tried: a {level}" for level in said]


def test_the_store_is_the_one_given_else_the_default(command, capsys, diode_home):
    @options.store
    def tried(store):
        click.echo(store)

    command(tried)
    assert main(["tried"]) == ExitCode.OK
    assert main(["tried", "--store", "mine.db"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [str(diode_home / "diode.db"), "mine.db"]
    assert main(["tried", "--store", "."]) == ExitCode.USAGE
