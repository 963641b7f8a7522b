"""The command diode-engine: its subcommands, each imported when it is called, and its exit
codes."""

from __future__ import annotations

import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import click
from click.core import ParameterSource

from diode_engine.cli import diagnostics, interrupts, settings
from diode_engine.cli.diagnostics import ExitCode
from diode_engine.errors import (
    DiodeError,
    NothingError,
    QueryError,
    RecordError,
    explain_missing_package,
)
from diode_engine.version import __version__


@dataclass(frozen=True)
class CommandEntry:
    """The module of this package that has a subcommand, as a function of its name, and its line in
    the help."""

    module: str
    help: str

    def load(self, name: str) -> click.Command:
        """The command. Raises ClickException where a module that it needs is not installed."""
        try:
            module = importlib.import_module(f"diode_engine.cli.{self.module}")
        except ModuleNotFoundError as exc:
            what = f"The command {name}"
            why = explain_missing_package(exc, what)
            raise click.ClickException(
                why or f"{what} needs {exc.name}, which is not installed; install Diode again."
            ) from exc
        return cast(click.Command, getattr(module, name.replace("-", "_")))


COMMANDS = {
    "report": CommandEntry("programs", "Show Diode's choices for a program's products."),
    "freeze": CommandEntry("programs", "Write a program's choices to a file for a review."),
    "collect": CommandEntry("collect", "Time Inductor's candidates on GPUs."),
    "collect-shapeset": CommandEntry("shapesets", "Time candidates on the problems of a file."),
    "create-validation": CommandEntry("shapesets", "Time problems that no training learns from."),
    "draw-problems": CommandEntry(
        "shapesets", "Write new problems to a file, to validate a model on."
    ),
    "capture": CommandEntry("programs", "Write the products that a program compiles to a file."),
    "data": CommandEntry("problems", "Import, export, list and count timings."),
    "train": CommandEntry("train", "Train a model on the timings in the store."),
    "tune": CommandEntry("tune", "Make a model for this machine's GPU in ten minutes."),
    "collect-and-train": CommandEntry(
        "collect_and_train", "Collect, train and validate, in one run."
    ),
    "validate": CommandEntry("validate", "Compare a model with others, on held-out data."),
    "validate-model": CommandEntry("validate", "Another name of validate."),
    "validate-max-autotune": CommandEntry(
        "validate", "Compare a model with kernels that max-autotune found."
    ),
    "models": CommandEntry("models", "List, compare, promote and pass on trained models."),
    "predict": CommandEntry("predict", "Predict the time of every candidate in a file."),
    "explain": CommandEntry("explain", "Explain which kernel a model takes, and why."),
    "export-lookup-table": CommandEntry(
        "lookup_table", "Write a model's choices as a table for Inductor."
    ),
    "workflow": CommandEntry("workflow", "Run several commands; skip what is up to date."),
    "runs": CommandEntry("runs", "List, follow, cancel and resume long jobs."),
    "doctor": CommandEntry("doctor", "Say what works here, what does not, and why."),
    "serve": CommandEntry("serve", "Show the dashboard in a browser."),
    "db": CommandEntry("db", "Upgrade, check, copy, compact and query the store."),
    "completion": CommandEntry("completion", "Make a shell complete commands and options."),
    "demo": CommandEntry("demo", "Show all of Diode on the shipped timings."),
}


HELP_NAMES = ["-h", "--help"]  # for each context: click keeps those of a command's first one


def parse(name: str, words: Sequence[str]) -> dict[str, Any]:
    """The values of a command's options in these words, as its function gets them. Raises
    click.UsageError for a mistake."""
    command = COMMANDS[name].load(name)
    return command.make_context(name, list(words), help_option_names=HELP_NAMES).params


def _takes_seed(command: click.Command) -> bool:
    return any(param.name == "seed" for param in command.params)


class _LazyGroup(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        result = super().invoke(ctx)
        # If the reader of stdout has gone, click ends silently here; at exit Python would complain.
        sys.stdout.flush()
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            said = settings.read(name, COMMANDS)
            ctx.default_map = {name: settings.default_map(said, command, name)}
            if ctx.params["seed"] is not None and _takes_seed(command):
                rest = ["--seed", str(ctx.params["seed"]), *rest]
        return name, command, rest

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return COMMANDS[cmd_name].load(cmd_name) if cmd_name in COMMANDS else None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)  # in the order of the work, not of the alphabet

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


_FORMAT = "a file's suffix says its format"
_DEVICE = "collect has --gpu, and models are fitted on a GPU where there is one"


@click.group(
    cls=_LazyGroup,
    name="diode-engine",
    commands=cast(dict[str, click.Command], COMMANDS),  # of which click takes the names alone
    context_settings={"help_option_names": HELP_NAMES, "max_content_width": 100},
)
@click.version_option(__version__, prog_name="diode-engine", message="%(prog)s %(version)s")
@click.option("-v", "--verbose", count=True, help="Print more messages; -vv prints all.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option(
    "--debug", is_flag=True, envvar="DIODE_DEBUG",
    help="Show the traceback of an error (also DIODE_DEBUG=1).",
)  # fmt: skip
@click.option("--seed", type=int, allow_from_autoenv=False, help="The command's --seed.")
@click.option(
    "--format", "form", type=click.Choice(("json", "msgpack")), allow_from_autoenv=False,
    help=f"Changes nothing: {_FORMAT}.",
)  # fmt: skip
@click.option("--device", allow_from_autoenv=False, help=f"Changes nothing: {_DEVICE}.")
@click.pass_context
def _root(
    ctx: click.Context, verbose: int, quiet: bool, debug: bool, seed: int | None, form: str | None,
    device: str | None,
) -> None:  # fmt: skip
    """Choose the kernels of matrix products in torch.compile by a model instead of a benchmark."""
    ctx.obj["debug"] = debug
    diagnostics.configure(-1 if quiet else verbose)
    name = str(ctx.invoked_subcommand)
    draws = _takes_seed(COMMANDS[name].load(name))
    unused = ("seed", None if draws else seed, f"{name} draws nothing"), ("format", form, _FORMAT)
    for option, value, why in (*unused, ("device", device, _DEVICE)):
        if value is not None:
            diagnostics.note(f"--{option} changes nothing: {why}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs diode-engine with these arguments (those of the process by default) and returns its
    exit code. A command's own return value, where it has one, is its exit code.

    Raises SystemExit(1), silently, where the reader of stdout has gone (`| head`)."""
    interrupts.install()
    if sys.stdout is None:  # the next file that is opened would get its number, and the output
        diagnostics.error("There is no stdout; redirect it to /dev/null if you do not want it.")
        return ExitCode.FAILURE
    if isinstance(sys.stdout, io.TextIOWrapper):  # "?" for a letter that a terminal does not have
        sys.stdout.reconfigure(errors="replace")
    args = list(sys.argv[1:] if arguments is None else arguments)
    state = {"debug": False}
    diagnostics.configure()
    try:
        code = _root.main(
            args,
            prog_name="diode-engine",
            standalone_mode=False,
            obj=state,
            auto_envvar_prefix=settings.ENVIRONMENT,
        )
    except click.ClickException as exc:
        exc.show()
        if isinstance(exc, click.BadParameter) and exc.ctx and exc.param:
            source = exc.ctx.get_parameter_source(str(exc.param.name))
            if source in (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP):
                diagnostics.note("It is from a variable DIODE_…, diode.toml or config.toml.")
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        diagnostics.note("Interrupted.")
        return ExitCode.INTERRUPTED
    except DiodeError as exc:
        if state["debug"]:
            diagnostics.console().print_exception()
        diagnostics.error(str(exc))
        if isinstance(exc, QueryError | RecordError):
            return ExitCode.USAGE
        return ExitCode.NOTHING if isinstance(exc, NothingError) else ExitCode.FAILURE
    except Exception as exc:  # noqa: BLE001  # the last resort: a user gets no traceback
        if isinstance(exc, OSError) and _is_of_stdout(exc):
            diagnostics.error(f"The output cannot be written: {exc.strerror}.")
        elif isinstance(exc, PermissionError) and exc.filename and not state["debug"]:
            diagnostics.error(f"{exc.filename} cannot be read or written: {exc.strerror}.")
        elif isinstance(exc, ModuleNotFoundError) and (
            why := explain_missing_package(exc, "This command")
        ):
            diagnostics.error(why)
        else:
            diagnostics.crash(exc, args, debug=state["debug"])
        return ExitCode.FAILURE
    return code if isinstance(code, int) else ExitCode.OK


def _is_of_stdout(error: OSError) -> bool:
    """Whether the error came from writing the command's output, not from a file that the command
    reads."""
    *_, (last, _) = traceback.walk_tb(error.__traceback__)
    return last.f_code in (click.echo.__code__, _LazyGroup.invoke.__code__)
