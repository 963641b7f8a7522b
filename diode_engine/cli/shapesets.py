"""diode-engine collect-shapeset, create-validation and draw-problems: files of problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics, options
from diode_engine.cli.collect import collect, drawn_options, named_sources, wanted_problems
from diode_engine.cli.data import open_existing
from diode_engine.cli.files import check_output
from diode_engine.cli.options import READ_FILE, WRITTEN_FILE, WordsCommand, option
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError, StoreMissingError
from diode_engine.location import Location
from diode_engine.problems.sources import Wanted, mixed, problems_in, read_shapeset, write_shapeset

_DRAWING_OPTIONS = ("sources", "problems", "log_normal", "power_of_two")
_shapeset_option = option(
    "--shapeset", "shapesets", metavar="FILE", type=READ_FILE, multiple=True,
    help="A shapeset or dataset, as FILE or --file names one; may be repeated.",
)  # fmt: skip


def _collect_options(*left_out: str) -> list[click.Parameter]:
    """Return the options of collect, without those of these names."""
    return [param for param in collect.params if param.name not in left_out]


@click.command("collect-shapeset", cls=WordsCommand)
@click.argument("files", metavar="FILE...", nargs=-1, type=READ_FILE)
@_shapeset_option
def collect_shapeset(files: tuple[Path, ...], shapesets: tuple[Path, ...], **values: Any) -> None:
    """Time Inductor's candidates on the problems of each FILE, a shapeset (as capture and
    draw-problems write it, or torch-diode) or a dataset: `collect --file FILE`."""
    assert collect.callback is not None
    files += shapesets
    if not files:
        raise click.UsageError("Name the FILE whose problems are to be timed.")
    collect.callback(
        files=files, sources=(), problems=len(files), log_normal=False, power_of_two=False,
        **values,
    )  # fmt: skip


collect_shapeset.params += _collect_options("files", *_DRAWING_OPTIONS)


@click.command("create-validation", cls=WordsCommand)
@option(
    "--output", metavar="FILE", type=click.Path(dir_okay=False), required=True,
    help="The dataset file to write; the timings are put into the store too.",
)  # fmt: skip
@options.problems(30)
@options.seed(default=1)
@_shapeset_option
def create_validation(files: tuple[Path, ...], shapesets: tuple[Path, ...], **values: Any) -> None:
    """Time Inductor's candidates on problems that every training holds out, as `collect` does, and
    write them to a dataset file, to validate models on. Of a --shapeset it times only the problems
    that are held out."""
    assert collect.callback is not None
    collect.callback(files=files + shapesets, only_held_out=True, **values)


create_validation.params += _collect_options("output", "problems", "seed")


@click.command("draw-problems")
@click.argument("file", type=WRITTEN_FILE)
@options.store
@option(
    "--dataset", "datasets", metavar="FILE", type=READ_FILE, multiple=True,
    help="Leave out the problems of this dataset or shapeset too; may be repeated.",
)  # fmt: skip
@options.problems(100)
@drawn_options
@options.seed(default=1)
@options.json_anyway
def draw_problems(
    file: Path, store: Location, datasets: tuple[Path, ...], problems: int, seed: int,
    **values: Any,
) -> None:  # fmt: skip
    """Write a shapeset to FILE with problems that the store does not have, so that no model made
    from it knows them. Time them into another store, and validate the model on them.

    \b
        diode-engine draw-problems new.json
        diode-engine collect-shapeset new.json --store new.db
        diode-engine validate --store new.db --all

    Problems that differ from a known one only in bias or alignment are left out too.
    """
    check_output(file, FileKind.SHAPESET, sources=datasets)
    wanted = wanted_problems(values)
    known = {_sizes(p) for each in datasets for p in problems_in(each, seed)}
    try:
        with open_existing(store) as opened:
            known |= {_sizes(problem) for problem in opened.read().problems}
    except StoreMissingError:
        if not datasets:
            diagnostics.warn(f"There is no store at {store}, so all problems count as unknown.")
    found = _unknown(problems, known, named_sources(values), wanted, seed)
    write_shapeset(found, file, f"draw-problems, seed {seed}")
    shared = sum(_sizes(problem) in known for problem in read_shapeset(file).problems(seed))
    if shared:
        raise CollectionError(
            f"{file} shares {shared} problems with the known ones, which is a "
            "defect of Diode: please report it."
        )
    diagnostics.note(f"{file}: {len(found)} problems, none of the {len(known)} that are known.")
    click.echo(json.dumps({"file": str(file), "problems": len(found), "known": len(known)}))


def _unknown(
    count: int, known: set[tuple[Any, ...]], sources: tuple[str, ...], wanted: Wanted, seed: int
) -> list[Problem]:
    asked = count
    while True:
        drawn = mixed(asked, seed, sources, wanted)
        found = [problem for problem in drawn if _sizes(problem) not in known][:count]
        if len(found) == count:
            return found
        if len(drawn) < asked or asked > 100 * (count + len(known)):
            raise CollectionError(
                f"The sources have only {len(found)} problems that are not known; name others with "
                "--source, or ask for fewer."
            )
        asked *= 2


def _sizes(p: Problem) -> tuple[Any, ...]:
    """The fields of a problem that matter for kernels. Problems that are equal in these count as
    the same."""
    layouts = p.a.layout, p.b.layout, p.inner_batches
    return (p.op, p.B, p.M, p.N, p.K, p.dtype, p.allow_tf32, *layouts)
