"""diode-engine export-lookup-table: a model's choices for Inductor's own LookupTableChoices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from diode_engine import paths
from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.data import open_existing, read_matching
from diode_engine.cli.explain import model_and_hardware
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.options import READ_FILE, WRITTEN_FILE, option
from diode_engine.cli.results import Result, result_command
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.demo.child import ask
from diode_engine.errors import IntegrationError, NothingError, explain_os_error
from diode_engine.location import Location
from diode_engine.models.predictor import Predictor
from diode_engine.problems.sources import problems_in
from diode_engine.problems.sources.shapeset import is_shapeset
from diode_engine.store import read_dataset

Table = dict[str, list[Mapping[str, Any]]]


@click.command("export-lookup-table")
@click.argument("file", type=WRITTEN_FILE)
@option(
    "--file", "files", type=READ_FILE, multiple=True,
    help="Choose for the problems of this shapeset (as capture writes it) or dataset; may be "
    "repeated.",
)  # fmt: skip
@options.store
@option("--query", help="Choose for the store's problems that this filter query finds.")
@options.model("the one for the GPU")
@option(
    "--hardware", metavar="NAME", help="The GPU of the deployment.",
    default_text="this machine's, else the only one that the problems were timed on, else the only "
    "one that models are for",
)  # fmt: skip
@option(
    "--top-k", type=click.IntRange(1), default=1,
    help="Kernels for each problem; Inductor times them if there are several.",
)  # fmt: skip
@result_command
def export_lookup_table(
    file: Path, files: tuple[Path, ...], store: Location, query: str | None, reference: str | None,
    hardware: str | None, top_k: int,
) -> Result:  # fmt: skip
    """Write a model's choices to FILE, a table for Inductor without Diode.

    The table is for the torch that is installed here, and for the problems that are named; other
    problems are left to Inductor. No GPU is needed. In the program that uses the table:

    \b
        import json, torch._inductor.config as config
        from torch._inductor.lookup_table.choices import LookupTableChoices
        from torch._inductor.virtualized import V
        config.lookup_table.table = json.load(open("FILE"))
        V.set_choices_handler(LookupTableChoices())
        torch.compile(model, mode="max-autotune-no-cudagraphs")

    Persistent TMA kernels need ENABLE_PERSISTENT_TMA_MATMUL=1 both for this command and for the
    program.
    """
    if not files and query is None:
        raise click.UsageError("Name the problems, with --file or --query.")
    check_output(file, FileKind.LOOKUP_TABLE, sources=files)
    problems, timed_on = _problems(files, store, query)
    model, device = model_and_hardware(reference, hardware, timed_on)
    if not problems:
        raise NothingError(
            "The files and the query have no problems; name others with --file or --query."
        )
    question = {
        "model": str(model.folder.absolute()), "hardware": device.to_dict(), "top": top_k,
        "problems": [problem.to_dict() for problem in problems],
    }  # fmt: skip
    diagnostics.note(f"Choosing for {len(problems)} problems by {model.reference} ...")
    table, unknown, twofold = _table(_answers(question, len(problems)))
    write_output(file, json.dumps(table, indent=1) + "\n", kind=FileKind.LOOKUP_TABLE)
    if unknown:
        diagnostics.warn(
            f"The model has no prediction for {unknown} problems; Inductor chooses for them."
        )
    if twofold:
        diagnostics.warn(
            f"{twofold} keys stand for problems with and without TF32, which Inductor's key "
            "does not tell apart: they are left to Inductor. Name problems of one kind."
        )
    done = {
        "file": str(file), "model": model.reference, "hardware": device.name,
        "problems": len(problems), "keys": len(table), "unknown": unknown, "ambiguous": twofold,
    }  # fmt: skip
    text = f"{file}: {len(table)} keys of {len(problems)} problems, for {device.name}."
    return Result(done, text)


def _problems(
    files: Sequence[Path], store: Location, query: str | None
) -> tuple[list[Problem], set[Hardware]]:
    """The problems, each once, and the GPUs that datasets and the store have timings of."""
    problems: list[Problem] = []
    tables = []
    for file in files:
        if is_shapeset(file):
            problems += problems_in(file, 0)
        else:
            tables.append(read_dataset(file, times_required=False))
    if query is not None:
        with open_existing(store) as opened:
            tables.append(read_matching(opened, query))
    problems += (problem for table in tables for problem in table.problems)
    timed_on = {environment.hardware for table in tables for environment in table.environments}
    return list(dict.fromkeys(problems)), timed_on


def _answers(question: Mapping[str, Any], total: int) -> Iterable[Table]:
    log = paths.data_dir() / "lookup-table.log"
    with explain_os_error(IntegrationError, f"{log.parent} cannot be made"):
        log.parent.mkdir(parents=True, exist_ok=True)
    # Without its GPU, if there is one: the process pretends to have the deployment's.
    environment = {"CUDA_VISIBLE_DEVICES": "", "DIODE_DISABLE": "1"}
    with diagnostics.progress() as display:
        answers = ask(f"{__name__}:entries", question, log=log, environment=environment)
        yield from display.track(answers, total=total, description="problems")


def entries(question: Mapping[str, Any]) -> Iterator[Table]:
    """The entries of each problem. Until it ends, this process pretends that the GPU is in this
    machine."""
    from diode_engine.inductor import without_gpu  # brings torch

    hardware = Hardware.from_dict(question["hardware"])
    without_gpu.pretend(hardware)
    from diode_engine.inductor.choosing.lookup_table import lookup_entries

    predictor = Predictor.load(Path(question["model"]), hardware)
    for given in question["problems"]:
        yield lookup_entries(Problem.from_dict(given), predictor, top=question["top"])


def _table(answers: Iterable[Table]) -> tuple[Table, int, int]:
    """The table, the number of problems without an entry, and the number of keys that are left out
    because several problems have the key and need different kernels."""
    table: Table = {}
    unknown, twofold = 0, set()
    for entries in answers:
        unknown += not entries
        for key, wanted in entries.items():
            if table.setdefault(key, wanted) != wanted:
                twofold.add(key)
    return {key: table[key] for key in table if key not in twofold}, unknown, len(twofold)
