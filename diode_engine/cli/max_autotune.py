"""diode-engine validate-max-autotune: a model compared with kernels that max-autotune found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from diode_engine.atomic import FileKind
from diode_engine.cli import diagnostics
from diode_engine.cli.data import open_existing, read_matching
from diode_engine.cli.files import check_output, write_output
from diode_engine.cli.judging import (
    find_judged_model,
    first_gpu,
    judged_options,
    judged_query,
    read_timings,
)
from diode_engine.cli.options import READ_FILE, WRITTEN_FILE, as_json_option, option
from diode_engine.location import Location


@click.command("validate-max-autotune")
@option(
    "--max-autotune-solution", "file", metavar="FILE", type=READ_FILE, required=True,
    help="The kernels: a JSON object with `name` and `configs`, each with block_m, block_n and "
    "block_k, and, where it is not for all problems, M, N, K and op.",
)  # fmt: skip
@judged_options
@option(
    "--top-n", "ns", metavar="N", type=click.IntRange(1, 100), multiple=True, default=(1, 3, 5, 10),
    help="Compare the best of the model's first N kernels; may be repeated.",
)  # fmt: skip
@option(
    "--output", metavar="FILE", type=WRITTEN_FILE,
    default=Path("model_performance_analysis_by_op.json"),
    help="The file for the comparison as JSON.",
)  # fmt: skip
@as_json_option
def validate_max_autotune(
    file: Path, reference: str | None, store: Location, query: str, op_name: str | None,
    hardware_name: str | None, dataset: Path | None, only_held_out: bool, ns: tuple[int, ...],
    output: Path, as_json: bool,
) -> None:  # fmt: skip
    """Compare the best of a model's first N kernels with a solution that max-autotune found, and
    with the best kernel that was measured.

    Measured times are compared, on the problems for which a kernel of the solution was timed. Speed
    above 1: the model's kernels are faster than the solution's.
    """
    from diode_engine.models.predictor import Predictor
    from diode_engine.validation.solution import against_solution, read_solution

    check_output(output, FileKind.TEXT, sources=(file, *([] if dataset is None else [dataset])))
    solution = read_solution(file)
    query = judged_query(query, op_name, hardware_name)
    if dataset is not None:
        table = read_timings(dataset, query)
    else:
        with open_existing(store) as opened:
            table = read_matching(opened, query)
    model, judged, _ = find_judged_model(table, reference, only_held_out=only_held_out)
    found = against_solution(
        judged,
        Predictor.load(model.folder, first_gpu(judged)),
        solution,
        name=model.reference,
        ns=sorted(set(ns)),
    )
    if found["sizes_left_out"]:
        diagnostics.note(
            f"None of the sizes in {file} was timed: its kernels are compared on all problems."
        )
    click.echo(json.dumps(found, allow_nan=False) if as_json else _text(found))
    write_output(output, json.dumps(found, indent=1) + "\n", kept="The comparison is above.")
    diagnostics.note(f"Statistics for each operator are in {output}.")


def _text(found: Mapping[str, Any]) -> str:
    from diode_engine.validation.text import aligned

    rows = []
    for op, group in (*found["by_op"].items(), ("all", found["all"])):
        if not group["compared"]:
            rows.append([op, "", "0", *[""] * 4])
        for n, top in group["top"].items():
            rows.append(
                [op, f"first {n}", str(group["compared"]), f"{group['efficiency']:.3f}",
                 f"{top['efficiency']:.3f}", f"{top['speed']:.3f}", f"{top['no_slower']:.0%}"]
            )  # fmt: skip
    header = ["op", "best of", "problems", "solution", "model", "speed", "no slower"]
    return (
        f"{found['model']} against {found['solution']} ({found['configs']} configs), as shares of "
        f"the best measured:\n{aligned(header, rows, left=2)}"
    )
