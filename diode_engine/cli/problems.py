"""diode-engine data problems, show and map: what was measured, problem by problem."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import click

from diode_engine.cli import diagnostics, options
from diode_engine.cli.data import data, describe_no_match, open_existing
from diode_engine.cli.options import option
from diode_engine.cli.queries import QueryCommand, form_options, query_argument, write
from diode_engine.core.problem import Problem
from diode_engine.core.timing import KERNEL_FACTS
from diode_engine.errors import NothingError, StoreError
from diode_engine.location import Location
from diode_engine.plain_text import format_number, format_records
from diode_engine.store import query as ask
from diode_engine.store.problem_counts import AXES, SpaceMap, space_map
from diode_engine.store.query import SORTS, CandidateRow, ProblemRow

__all__ = ["data"]  # the group, with these commands

rows_option = option("--rows", type=click.IntRange(1, 500), default=20, help="Rows on a page.")
page_option = option("--page", type=options.NUMBER, default=1, help="The page to show.")


@data.command(cls=QueryCommand)
@query_argument
@options.store
@option(
    "--sort", type=click.Choice(SORTS), default="problem", help="The column to sort by.",
)  # fmt: skip
@option("--descending", is_flag=True, help="The largest first.")
@page_option
@rows_option
@form_options
def problems(
    query: str, store: Location, sort: str, descending: bool, page: int, rows: int, form: str
) -> None:
    """List the problems, with the best of their candidates and how well ATen does.

    QUERY is terms that must all hold, such as: op:mm,addmm dtype:bf16 'm<=64' 'k%8!=0' n:64..512
    tf32:yes layout:row/col model:llama-7b gpu:h200 'efficiency<0.8' -bias:none. The message on a
    mistake in it lists the fields. Quote < and > for the shell.
    """
    with open_existing(store) as opened:
        total = ask.count_problems(opened, query)
        first = (page - 1) * rows
        found = ask.problems(
            opened, query, sort=sort, descending=descending, offset=first, limit=rows
        )
    if form != "text":
        write(form, (row.to_dict() for row in found), _COLUMNS)
        return
    if not found:
        diagnostics.note(
            f"Page {page} is empty: there are {total:,} such problems."
            if total
            else describe_no_match(store, query)
        )
        return
    click.echo(_problems_text(found))
    diagnostics.note(
        f"{first + 1:,} to {first + len(found):,} of {total:,}."
        + (f" --page {page + 1} shows more." if first + len(found) < total else "")
    )


@data.command()
@click.argument("problem", metavar="PROBLEM")
@options.store
@page_option
@rows_option
@form_options
def show(problem: str, store: Location, page: int, rows: int, form: str) -> None:
    """Show a problem's candidates, the fastest first, in each environment in which it was measured.

    PROBLEM is its number, as `data problems` shows it, or the beginning of its key. A time is the
    median of the candidate's timings; candidates that always failed come last.
    """
    query = f"id:{problem}" if re.fullmatch("[0-9]{1,9}", problem) else f'key:"{problem}"'
    with open_existing(store) as opened:
        found = ask.problems(opened, query)
        keys = {row.problem.key for row in found}
        if not keys:
            raise NothingError(
                f"There is no problem {problem} in {store}; `diode-engine data problems` lists "
                "the store's."
            )
        if len(keys) > 1:
            raise StoreError(
                f"The keys of several problems begin with {problem}: {', '.join(sorted(keys))}."
            )
        first = (page - 1) * rows
        ranked = [
            (row, ask.candidates(opened, row.number, row.environment_number,
                                 offset=first, limit=rows))
            for row in found
        ]  # fmt: skip
    if form == "json":
        shown = [
            {**row.to_dict(), "environment": row.environment.to_dict(),
             "ranked": [{"rank": rank, **c.to_dict(row.best_us)}
                        for rank, c in enumerate(some, first + 1)]}
            for row, some in ranked
        ]  # fmt: skip
        click.echo(json.dumps(shown))
    elif form == "csv":
        cells = [
            {**row.problem_values(), "rank": first + i, **c, "kwargs": json.dumps(c["kwargs"]),
             "failures": " ".join(f"{k}:{n}" for k, n in c["failures"].items())}
            for row, some in ranked
            for i, c in enumerate((each.to_dict(row.best_us) for each in some), 1)
        ]  # fmt: skip
        write("csv", cells, _CANDIDATE_COLUMNS)
    else:
        click.echo(f"Problem {found[0].number}: {found[0].problem} (key {found[0].problem.key})")
        for row, some in ranked:
            e = row.environment
            software = ", ".join(
                f"{name} {version}"
                for name, version in (("driver", e.driver), ("torch", e.torch),
                                      ("triton", e.triton))
                if version
            )  # fmt: skip
            click.echo(f"\n{e.hardware.name}" + (f" ({software})" if software else ""))
            efficiency = format_number(row.efficiency, ".3f") or "is not known"
            click.echo(
                f"{row.timings:,} timings of {row.candidates:,} candidates, {row.failed:,} of "
                f"which failed; ATen's efficiency {efficiency}"
            )
            if some:
                click.echo(_ranked_text(row, some, first))


@data.command("map", cls=QueryCommand)
@query_argument
@options.store
@option(
    "--across", type=click.Choice(AXES), default="n", help="The size that grows to the right.",
)  # fmt: skip
@option(
    "--down", type=click.Choice(AXES), default="m", help="The size that grows downwards.",
)  # fmt: skip
@form_options
def map_(query: str, store: Location, across: str, down: str, form: str) -> None:
    """Count the problems by their sizes, each bin from a power of two to the next: it shows for
    which sizes there are few timings. QUERY as in `data problems`."""
    with open_existing(store) as opened:
        found = space_map(opened, query, x=across, y=down)
    x_from = [2 ** (found.x_first + i) for i in range(found.counts.shape[1])]
    y_from = [2 ** (found.y_first + i) for i in range(found.counts.shape[0])]
    if form == "json":
        grid = {"across": across, "down": down, f"{across}_from": x_from, f"{down}_from": y_from}
        click.echo(json.dumps({**grid, "problems": found.counts.tolist()}))
    elif form == "csv":
        names = (f"{down}_from", f"{across}_from", "problems")
        cells = [
            dict(zip(names, (y, x, int(found.counts[i, j])), strict=True))
            for i, y in enumerate(y_from)
            for j, x in enumerate(x_from)
        ]
        write("csv", cells, names)
    elif not found.counts.size:
        diagnostics.note(describe_no_match(store, query))
    else:
        click.echo(_map_text(found, x_from, y_from))


def _map_text(found: SpaceMap, x_from: list[int], y_from: list[int]) -> str:
    corner = f"{found.y.upper()} ↓ {found.x.upper()} →"
    lines = [[corner, *(_sized(x) for x in x_from)]]
    for y, row in zip(y_from, found.counts.tolist(), strict=True):
        lines.append([_sized(y), *(_counted(n) for n in row)])
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        " ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _sized(n: int) -> str:
    for unit, size in (("G", 2**30), ("M", 2**20), ("k", 2**10)):
        if n >= size:
            return f"{n // size}{unit}"
    return str(n)


def _counted(n: int) -> str:
    if n < 1000:
        return str(n or "·")
    return f"{n // 1000}k" if n < 1_000_000 else f"{n // 1_000_000}M"


# Rows

_PROBLEM_COLUMNS = (
    "id", "key", "op", "B", "M", "N", "K", "dtype", "out_dtype", "a_layout", "a_align",
    "b_layout", "b_align", "allow_tf32", "bias", "gpu", "driver", "torch", "triton",
)  # fmt: skip
_COLUMNS = (
    *_PROBLEM_COLUMNS, "candidates", "failed", "timings", "best", "best_us", "aten_us",
    "aten_efficiency",
)  # fmt: skip
_CANDIDATE_COLUMNS = (
    *_PROBLEM_COLUMNS, "rank", "template", "kwargs", "time_us", "spread_us", "efficiency",
    "timings", "failures", *KERNEL_FACTS,
)  # fmt: skip


def _problems_text(rows: list[ProblemRow]) -> str:
    shown = [
        {
            "id": str(row.number), "problem": short(row.problem),
            "GPU": row.environment.hardware.name, "fastest": str(row.best or ""),
            "tried": f"{row.candidates:,}", "failed": f"{row.failed:,}",
            "best µs": format_number(row.best_us, ",.2f"),
            "ATen µs": format_number(row.aten_us, ",.2f"),
            "ATen eff.": format_number(row.efficiency, ".3f"),
        }
        for row in rows
    ]  # fmt: skip
    return format_records(shown, spare=("failed", "GPU", "fastest"), cut="fastest")


def _ranked_text(problem: ProblemRow, rows: list[CandidateRow], first: int) -> str:
    shown = [
        {
            "rank": str(rank), "candidate": str(row.candidate),
            "µs": format_number(row.time_us, ",.2f"),
            "spread µs": format_number(row.spread_us, ",.2f"),
            "efficiency": format_number(row.to_dict(problem.best_us)["efficiency"], ".3f"),
            "timings": str(row.timings),
            "registers": "" if row.kernel is None else str(row.kernel.registers),
            "spilled": "" if row.kernel is None else str(row.kernel.spill_stores),
            "failed": _failures(row.failures),
        }
        for rank, row in enumerate(rows, first + 1)
    ]  # fmt: skip
    return format_records(
        shown, spare=("registers", "spilled", "timings", "spread µs"), cut="candidate"
    )


def short(problem: Problem) -> str:
    """A problem in a few characters: its sizes, type and layouts."""
    batch = f"{problem.B}×" if problem.op.batched else ""
    dtype = "tf32" if problem.allow_tf32 else problem.dtype.short
    sizes = f"{batch}{problem.M}×{problem.N}×{problem.K}"
    return f"{problem.op} {sizes} {dtype} {problem.a.layout}/{problem.b.layout}"


def _failures(failures: Mapping[str, int]) -> str:
    return ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in failures.items())
