"""The command's frame: help, exit codes, and what is said where."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from diode_engine.cli import ExitCode, diagnostics, main, plain_progress
from diode_engine.cli.group import COMMANDS, CommandEntry
from diode_engine.cli.options import store_option
from diode_engine.errors import NoSuchRunError, StoreError
from diode_engine.version import __version__

Register = Callable[[Callable[..., object]], None]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Makes a function the subcommand `tried`."""

    def register(function: Callable[..., object]) -> None:
        module = types.ModuleType("tried_command")
        module.tried = click.command(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tried_command", module)
        monkeypatch.setitem(COMMANDS, "tried", CommandEntry("tried_command:tried", "Tried here."))

    return register


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_options_of_a_command_may_come_before_it(
    command: Register, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(seed: int) -> None:
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


def test_a_seed_where_nothing_is_drawn(
    command: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda: click.echo("done"))
    assert main(["--seed", "3", "tried"]) == ExitCode.OK
    assert capsys.readouterr() == ("done\n", "--seed changes nothing: tried draws nothing.\n")
    assert main(["-q", "--seed", "3", "tried"]) == ExitCode.OK
    assert capsys.readouterr().err == ""


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import json, sys; from diode_engine.cli import main; code = main(['--help']);"
        "json.dump([code, sorted(sys.modules)], sys.stderr)"
    )
    shown = run_python(code)
    exit_code, loaded = json.loads(shown.stderr)
    assert exit_code == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown.stdout
        assert entry.help in shown.stdout
        assert entry.target.split(":")[0] not in loaded
    assert not {"torch", "numpy", "sqlalchemy", "xgboost", "rich", "msgpack"} & set(loaded)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_is_where_the_table_says(name: str) -> None:
    entry = COMMANDS[name]
    if importlib.util.find_spec(entry.target.split(":")[0]) is None:
        pytest.skip(f"{name} is not written yet")
    loaded = entry.load(name)
    assert isinstance(loaded, click.Command)
    assert loaded.help


def test_version_is_one_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr() == (f"diode-engine {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--no-such-option"], ["trian"], []])
def test_wrong_use_exits_with_2_and_leaves_stdout_alone(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage: diode-engine" in err


def test_a_misspelt_command_is_answered_with_the_right_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["trian"])
    assert "Did you mean 'train'?" in capsys.readouterr().err


def test_a_command_whose_library_is_missing_says_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        COMMANDS, "tried", CommandEntry("no_such_library.part:tried", "Tried here.")
    )
    assert main(["tried"]) == ExitCode.FAILURE
    assert "needs no_such_library, which is not installed" in capsys.readouterr().err


def test_data_goes_to_stdout_and_notes_to_stderr(
    command: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    def tried() -> None:
        diagnostics.note("Reading [1/2] 'x'.")
        click.echo('{"us": 1.0}')

    command(tried)
    assert main(["tried"]) == ExitCode.OK
    assert capsys.readouterr() == ('{"us": 1.0}\n', "Reading [1/2] 'x'.\n")


def test_a_commands_own_exit_code_is_kept(command: Register) -> None:
    command(lambda: ExitCode.FAILURE)
    assert main(["tried"]) == ExitCode.FAILURE


def test_an_expected_error_is_one_sentence(
    command: Register, capsys: pytest.CaptureFixture[str], diode_home: Path
) -> None:
    def tried() -> None:
        raise StoreError("The store x.db is locked; close the other Diode.")

    command(tried)
    assert main(["tried"]) == ExitCode.FAILURE
    assert capsys.readouterr() == ("", "Error: The store x.db is locked; close the other Diode.\n")
    assert not diode_home.exists()


def boom() -> None:
    raise ZeroDivisionError("by nought")


def test_an_unexpected_error_is_a_sentence_and_a_traceback_in_the_log(
    command: Register, capsys: pytest.CaptureFixture[str], diode_home: Path
) -> None:
    command(boom)
    assert main(["tried"]) == ExitCode.FAILURE
    err = capsys.readouterr().err
    log = diode_home / "errors.log"
    assert err.count("\n") == 1
    assert "ZeroDivisionError: by nought" in err
    assert str(log) in err
    kept = log.read_text(encoding="utf-8")
    assert "Traceback" in kept
    assert "['tried']" in kept


def test_an_unexpected_error_is_shown_where_the_log_cannot_be_written(
    command: Register, capsys: pytest.CaptureFixture[str], diode_home: Path
) -> None:
    diode_home.write_text("a file, not a folder", encoding="utf-8")
    command(boom)
    assert main(["tried"]) == ExitCode.FAILURE
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("by_variable", [True, False])
def test_debug_shows_the_traceback(
    by_variable: bool,
    command: Register,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    diode_home: Path,
) -> None:
    command(boom)
    if by_variable:
        monkeypatch.setenv("DIODE_DEBUG", "1")
    assert main(["tried"] if by_variable else ["--debug", "tried"]) == ExitCode.FAILURE
    assert "Traceback" in capsys.readouterr().err
    assert not diode_home.exists()


def test_an_interrupt_exits_with_130_without_a_traceback(
    command: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    def tried() -> None:
        raise KeyboardInterrupt

    command(tried)
    assert main(["tried"]) == ExitCode.INTERRUPTED
    err = capsys.readouterr().err
    assert "Interrupted." in err
    assert "Traceback" not in err


TRIED = (
    "import signal, sys, types, click\n"
    "from diode_engine.cli import main\n"
    "from diode_engine.cli.group import COMMANDS, CommandEntry\n"
    "def wait():\n"
    "    try:\n"
    "        print('ready', flush=True)\n"
    "        signal.pause()\n"
    "    finally:\n"
    "        print('kept', flush=True)\n"
    "def wait_and_put_in_order():\n"
    "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
    "    try:\n"
    "        wait()\n"
    "    finally:\n"
    "        signal.sigwait({signal.SIGUSR1})\n"
    "        print('in order', flush=True)\n"
    "def put(text):\n"
    "    return lambda: click.echo(text)\n"
    "module = sys.modules['tried_command'] = types.ModuleType('tried_command')\n"
    "module.tried = click.command('tried')(HERE)\n"
    "COMMANDS['tried'] = CommandEntry('tried_command:tried', '')\n"
    "sys.exit(main(['tried']))\n"
)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_in_order(sent: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TRIED.replace("HERE", "wait")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert out == "kept\n"
    assert "Traceback" not in err


def test_impatient_signals_do_not_disturb_what_puts_things_in_order() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TRIED.replace("HERE", "wait_and_put_in_order")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "kept\n"
        for impatient in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            process.send_signal(impatient)
        process.send_signal(signal.SIGUSR1)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.INTERRUPTED, "in order\n")
    assert "Traceback" not in err


def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(1, signal.SIG_IGN)\n"
         + TRIED.replace("HERE", "wait")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        ignored = Path(f"/proc/{process.pid}/status").read_text().partition("SigIgn:\t")[2][:16]
        assert int(ignored, 16) & 1 << (signal.SIGHUP - 1)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED


@pytest.mark.parametrize("length", [1, 100_000])  # met at the end, and in the middle
def test_a_full_disk_is_a_sentence(length: int) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", TRIED.replace("HERE", f"put('x' * {length})")],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ran.stderr == "Error: The output cannot be written: No space left on device.\n"
    assert ran.returncode == ExitCode.FAILURE


def test_without_a_stdout_nothing_is_begun() -> None:
    program = [sys.executable, "-c", TRIED.replace("HERE", "wait")]
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *program], capture_output=True, text=True, check=False
    )
    assert ran.stderr.startswith("Error: There is no stdout;")
    assert ran.returncode == ExitCode.FAILURE


def test_a_terminal_without_the_letters_is_no_error() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TRIED.replace("HERE", "put('2 × 3 … 漢 é')")],
        env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
        capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "2 × 3 ? ? é\n".encode("latin-1"))


@pytest.mark.parametrize("lines", [1, 100_000])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_met_in_silence(lines: int, unbuffered: str) -> None:
    code = (
        "import sys, types, click\n"
        "from diode_engine.cli import main\n"
        "from diode_engine.cli.group import COMMANDS, CommandEntry\n"
        "module = sys.modules['tried_command'] = types.ModuleType('tried_command')\n"
        "module.tried = click.command('tried')(\n"
        "    lambda: [sys.stdout.write('line\\n') for _ in range(int(sys.argv[1]))] and None)\n"
        "COMMANDS['tried'] = CommandEntry('tried_command:tried', '')\n"
        "sys.stdin.read()\n"
        "sys.exit(main(['tried']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lines)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()  # only now it writes
        assert process.stderr.read() == ""
    assert process.returncode == ExitCode.FAILURE


def test_progress_without_a_terminal_is_a_line_now_and_then(
    command: Register, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 31.0, 60.0, 92.0, 120.0, 500.0])
    timer = types.SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(plain_progress, "time", timer)

    def tried() -> None:
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


def test_what_does_not_exist_exits_with_3(
    command: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    def tried() -> None:
        raise NoSuchRunError("There is no run 7.")

    command(tried)
    assert main(["tried"]) == ExitCode.NOTHING == 3
    assert capsys.readouterr().err == "Error: There is no run 7.\n"


def test_quiet_leaves_only_errors(command: Register, capsys: pytest.CaptureFixture[str]) -> None:
    def tried() -> None:
        diagnostics.note("A note.")
        diagnostics.warn("Odd.")
        logging.getLogger("diode_engine.tried").warning("Odd, says the log.")
        assert diagnostics.progress().disable
        raise StoreError("The store is gone.")

    command(tried)
    assert main(["-q", "tried"]) == ExitCode.FAILURE
    assert capsys.readouterr().err == "Error: The store is gone.\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [([], ["warning"]), (["-v"], ["info", "warning"]), (["-vv"], ["debug", "info", "warning"])],
)
def test_verbose_shows_more_of_the_log(
    options: list[str], said: list[str], command: Register, capsys: pytest.CaptureFixture[str]
) -> None:
    def tried() -> None:
        log = logging.getLogger("diode_engine.tried")
        for level in ("debug", "info", "warning"):
            getattr(log, level)(f"a {level}")

    command(tried)
    assert main([*options, "tried"]) == ExitCode.OK
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{level.upper()} diode_engine.tried: a {level}" for level in said]


def test_the_store_is_the_one_given_else_the_default(
    command: Register, capsys: pytest.CaptureFixture[str], diode_home: Path
) -> None:
    @store_option
    def tried(store: Path) -> None:
        click.echo(store)

    command(tried)
    assert main(["tried"]) == ExitCode.OK
    assert main(["tried", "--store", "mine.db"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [str(diode_home / "diode.db"), "mine.db"]
    assert main(["tried", "--store", "."]) == ExitCode.USAGE
