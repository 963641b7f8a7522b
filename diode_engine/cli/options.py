"""The options that several commands share."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from diode_engine import paths
from diode_engine.cli import diagnostics
from diode_engine.core.operand import Layout, short_name
from diode_engine.errors import StoreError
from diode_engine.location import FORM, child_environment, is_url
from diode_engine.models.model_types import ENSEMBLE, trainable_names

if TYPE_CHECKING:
    from diode_engine.training.fits import FitExecutor

LAYOUTS = tuple(f"{a}/{b}" for a in Layout for b in Layout)  # of both operands
ONE_MODEL = "one model"  # what is judged without --cross-validate
NUMBER = click.IntRange(1, 10**9)  # of a run or a page
SEED = click.IntRange(0, 2**31 - 1)  # what NumPy, torch and XGBoost all take
F = TypeVar("F", bound=Callable[..., object])


class StoreType(click.Path):
    """A store's location.

    A URL with a password is refused on the command line, where everybody on the machine may see it.
    From elsewhere, the password is put into this process's environment, so that its child processes
    can be given the URL without it.
    """

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("It is empty: name a store, or leave the option out.", param, ctx)
        if not is_url(value):
            value = super().convert(value, param, ctx)
        try:
            found = paths.store_location(value)
        except StoreError as error:
            self.fail(str(error), param, ctx)
        given = child_environment(found)
        named = None if ctx is None or param is None else ctx.get_parameter_source(str(param.name))
        if given and named is ParameterSource.COMMANDLINE:
            self.fail(
                "A password on the command line is seen by everybody on this machine: put it into "
                "~/.pgpass or PGPASSWORD, or the whole URL into DIODE_STORE.", param, ctx,
            )  # fmt: skip
        os.environ.update(given)
        return found


class FiniteRange(click.FloatRange):
    """A number in a range, without nan, which no bound excludes, and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class TypeChoice(click.Choice[str]):
    """The short name of an element type, which may be given in any spelling."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(short_name(str(value)), param, ctx)


class WordsCommand(click.Command):
    """Some options take a list: `--operations mm,bmm`, or `--operations mm bmm`, as torch-diode's
    toolkit has it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        joined: list[str] = []
        option = ""  # the last one, if it takes a list
        for word in args:
            if word.startswith("-"):
                option = word if word in ("--operations", "--file-extensions") else ""
            elif option and joined[-1] != option:
                joined[-1] += f",{word}"
                continue
            joined.append(word)
        return super().parse_args(ctx, joined)


class Option(click.Option):
    """An option of a command, declared once: --help, docs/commands.md and the field of the
    dashboard's form are made from it.

    With a `heading` the command's form has a field for it, in the part of this name. `label` names
    the field (by default the option's name does), and `applies` says whether the option has a
    meaning, given the values of the form's fields by `key`. `help` is shown in both; `details` are
    sentences that only --help adds. `default_text` says what is done where the option is not given:
    it ends the help, and is shown in the empty field. `names` are all the names of which the option
    takes some, with commas between.
    """

    def __init__(
        self, spellings: Sequence[str], *, help: str = "", details: str = "",
        default_text: str = "", names: Sequence[str] = (), heading: str = "", label: str = "",
        applies: Callable[[Mapping[str, str]], bool] = lambda _: True, **attributes: Any,
    ) -> None:  # fmt: skip
        self.meaning, self.default_text = help, default_text
        self.names, self.heading, self.applies = names, heading, applies
        default = attributes.get("default")
        self.usual = "" if default is None else str(default)
        ending = default_text and f"[default: {default_text}]"
        attributes.setdefault("show_default", default not in (None, ""))
        super().__init__(
            spellings, help=" ".join(filter(None, (help, details, ending))), **attributes
        )
        self.key = self.opts[0].removeprefix("--").replace("-", "_")  # in a run's record
        self.label = label or self.key.replace("_", " ").capitalize()


def option(*spellings: str, **attributes: Any) -> Callable[[F], F]:
    """Adds an Option to a command."""
    return click.option(*spellings, cls=Option, **attributes)


def add_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Adds options that several commands share, in this order."""
    return lambda command: functools.reduce(lambda done, add: add(done), reversed(options), command)


# The command gets `store: Location`, the default already filled in.
store = option(
    "--store", "--db", "store", metavar="PATH|URL", envvar="DIODE_STORE", type=StoreType(),
    callback=lambda _context, _option, given: given or paths.store_location(),
    help=f"The database of timings: a file, or {FORM}.",
    default_text="$DIODE_STORE, else diode.db in Diode's data directory",
)  # fmt: skip
READ_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
WRITTEN_FILE = click.Path(dir_okay=False, path_type=Path)
FILE_OR_FOLDER = click.Path(path_type=Path)

as_json = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON.")
# Every command accepts --json, so that a script can always give it.
json_anyway = option(
    "--json", is_flag=True, expose_value=False, help="Changes nothing: the result is always JSON."
)


def unused(name: str, *, instead: str, is_flag: bool = False) -> Callable[[F], F]:
    """Adds an option of torch-diode's toolkit that changes nothing here. Where it is given, a line
    says what is used `instead`."""

    def say(ctx: click.Context, param: click.Parameter, _value: object) -> None:
        if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
            diagnostics.note(f"{name} changes nothing: {instead}.")

    return click.option(name, is_flag=is_flag, hidden=True, expose_value=False, callback=say)


def problems(default: int) -> Callable[[F], F]:
    """Adds --problems (or --num-shapes); the command gets `problems: int`."""
    return option(
        "--problems", "--num-shapes", type=click.IntRange(1), default=default,
        heading="Problems", help="How many distinct problems to draw from the sources.",
    )  # fmt: skip


budget = option(
    "--budget", type=click.IntRange(1), heading="Candidates of each",
    help="At most this many candidates for each problem: ATen, decompose_k and the DEFAULT space "
    "first, then the model's favourites, random others and the neighbours of the best.",
    default_text="all",
)  # fmt: skip


def seed(
    meaning: str = "Another seed draws other problems.", *, default: int = 0, heading: str = "How"
) -> Callable[[F], F]:
    """Adds --seed; the command gets `seed: int`. `meaning` says what another seed changes."""
    return option("--seed", type=SEED, default=default, heading=heading, help=meaning)


def family(**attributes: Any) -> Callable[[F], F]:
    """Adds --family; the command gets `family: str`. `attributes` are Option's."""
    usual = {"default": ENSEMBLE, "heading": "Model", "help": "The type of the model."}
    return option("--family", type=click.Choice(trainable_names()), **{**usual, **attributes})


def name(default: str) -> Callable[[F], F]:
    """Adds --name; the command gets `name: str | None`. `default` says what the name is where none
    is given."""
    return option(
        "--name", heading="Model", default_text=default,
        help="Register the model as the next version of this name.",
    )  # fmt: skip


def query(help: str, heading: str, **attributes: Any) -> Callable[[F], F]:
    """Adds --query, a filter query on problems; the command gets `query: str`."""
    return option(
        "--query", default="", heading=heading,
        help=f"{help}, such as dtype:bf16 op:mm,addmm m<=4096.",
        default_text="all problems with timings", **attributes,
    )  # fmt: skip


def model(default: str) -> Callable[[F], F]:
    """Adds --model; the command gets `reference: str | None`. `default` says which model is taken
    where none is named."""
    return option(
        "--model", "reference", metavar="NAME|PATH", heading="What is judged",
        help="The model: NAME, NAME@VERSION, or a folder or file.", default_text=default,
        applies=lambda values: values.get("cross_validate") in (None, ONE_MODEL),
    )  # fmt: skip


def gpus(more: str, default: str) -> Callable[[F], F]:
    """Adds --gpu (or --gpus); the command gets `gpus: tuple[int, ...]`, empty where none is named.
    `more` is added to the help, and `default` says which GPUs are used where none is named."""
    return option(
        "--gpu", "--gpus", "gpus", type=click.IntRange(0), multiple=True, heading="How",
        label="GPUs", help="Use the GPU of this number, from 0; may be repeated.", details=more,
        default_text=default,
    )  # fmt: skip


def split_names(listed: str) -> tuple[str, ...]:
    """The names in an option's value, which has commas between them."""
    return tuple(filter(None, listed.split(",")))


def ray(what: str) -> Callable[[F], F]:
    """Adds --ray. `what` says what is done on the cluster's cores; `fits_on` takes the address."""
    where = "the Ray cluster at this address, host:port or auto (docs/scale.md)"
    return option("--ray", metavar="ADDRESS", help=f"{what} on the cores of {where}.")


# For a command that times on a cluster's GPUs: with `check_cluster`.
accelerator = option(
    "--accelerator", metavar="KIND",
    help="With --ray: only on GPUs of this kind, a type of accelerator as Ray names it (H200) or a "
    "custom resource. Needed where the cluster has several.",
)  # fmt: skip


def check_cluster(ray: str | None, accelerator: str | None, gpus: Sequence[int]) -> None:
    """Raises UsageError for options that do not go together."""
    if ray is not None and gpus:
        raise click.UsageError("--gpu names GPUs of this machine: with --ray use --accelerator.")
    if accelerator is not None and ray is None:
        raise click.UsageError("--accelerator goes with --ray.")


@contextlib.contextmanager
def fits_on(address: str | None) -> Iterator[FitExecutor]:
    """The executor that makes fits on the cluster; where no address is given, on the cores of this
    machine. Raises TrainingError where there is no such cluster, or Ray is not installed."""
    if address is None:
        from diode_engine.training.process_fits import ProcessFits

        yield ProcessFits()
        return
    from diode_engine.training.ray_fits import RayFits

    with RayFits(address) as fits:
        yield fits


# For the commands of `models`.
model_argument = click.argument("model", metavar="MODEL")
hardware = option(
    "--hardware", metavar="NAME", default_text="this machine's",
    help="The GPU, where models for several GPUs have the name; such as H200 or nvidia-h200.",
)  # fmt: skip
reason = click.option("--reason", default="", help="Why; kept in the registry's history.")
