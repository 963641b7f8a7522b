"""diode-engine explain: why a model takes the kernel that it takes. Needs no GPU and no torch."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from diode_engine import registry
from diode_engine.choosing.choice import Choice
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.outcomes import LeftToStock
from diode_engine.cli import options
from diode_engine.cli.models.looking import (
    find_model_here,
    model_for,
    named_hardware,
    warn_unlike,
    warn_unusable,
)
from diode_engine.cli.options import LAYOUTS, READ_FILE, TypeChoice, option
from diode_engine.cli.results import Result, result_command
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.operand import TYPES, DType
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.errors import NoSuchModelError, NothingError
from diode_engine.models import explain as why
from diode_engine.models.estimates import resources, roofline
from diode_engine.models.predictor import Predictor
from diode_engine.plain_text import format_number, format_table
from diode_engine.problems.predicted_choice import choose_invariant, choose_offered
from diode_engine.problems.spaces import OLDEST, version_of
from diode_engine.registry import ModelVersion

METHOD = (
    "Exact Shapley values over all orders in which the groups of features can change from one "
    "candidate's values to the other's (baseline Shapley: Sundararajan and Najmi, ICML 2020). The "
    "product of the factors is the ratio of the two predicted times."
)
_SIZE = click.IntRange(1)
_OF_ONE = ("batch", "dtype", "layouts", "attributes", "bias", "batch_invariant", "top")


@click.command()
@click.argument("op", type=click.Choice(tuple(OPERATORS)), required=False, metavar="[OP]")
@click.argument("m", type=_SIZE, required=False)
@click.argument("n", type=_SIZE, required=False)
@click.argument("k", type=_SIZE, required=False)
@option(
    "--file", metavar="FILE", type=READ_FILE,
    help="List the choice for each problem of this shapeset (as capture writes it) or dataset, "
    "instead of explaining one.",
)  # fmt: skip
@option(
    "--batch", type=_SIZE, default=1, help="The batch, for an operator that has one, such as bmm."
)
@option(
    "--dtype", type=TypeChoice(TYPES), default_text="bf16, or what the operator needs",
    help="The type of the operands and, where it has 16 bits or more, of the result; tf32 is "
    "float32 that may be computed in TF32.",
)  # fmt: skip
@option(
    "--layouts", type=click.Choice(LAYOUTS), default_text="row/row, or what the operator needs",
    help="The layouts of the operands; a Linear layer has row/col.",
)  # fmt: skip
@option(
    "--with", "attributes", metavar="NAME=VALUE", multiple=True,
    help="An attribute that only problems of this operator have, such as scaling=row; may be "
    "repeated.",
)  # fmt: skip
@option(
    "--bias", type=click.Choice(("scalar", "vector", "column", "matrix")),
    help="The bias, for an op that has one.",
    default_text="the op's own, such as a vector for addmm",
)  # fmt: skip
@options.model("the one for the GPU")
@option(
    "--hardware", metavar="NAME", help="The GPU to choose for.",
    default_text="this machine's, else the only one that models are for",
)  # fmt: skip
@option(
    "--torch", metavar="VERSION", default="",
    help="Rank the candidates that this version of torch offers.",
    default_text="the newest version that Diode knows",
)  # fmt: skip
@option(
    "--batch-invariant", is_flag=True,
    help="Say too which kernel the option diode_batch_invariant takes, and what that costs, with "
    "what is proven for the installed torch or that of --torch.",
)  # fmt: skip
@option("--top", type=_SIZE, default=5, help="How many candidates to list.")
@result_command
def explain(
    op: str | None, m: int | None, n: int | None, k: int | None, file: Path | None, batch: int,
    dtype: str | None, layouts: str | None,
    attributes: tuple[str, ...], bias: str | None, reference: str | None, hardware: str | None,
    torch: str, batch_invariant: bool, top: int,
) -> Result:  # fmt: skip
    """Explain which kernel a model takes for OP (mm, addmm, bmm ...) of sizes M, N and K, and why.

    All candidates of max-autotune's EXHAUSTIVE space that the device can launch are ranked, as at
    compile time. The first one is compared with the best of the library's kernels (or, if it is one
    of these, with the best of Triton's): how much each group of features adds to the difference,
    and what each kernel needs of the device. The command also says how sure the model is.

    \b
        diode-engine explain addmm 64 4096 4096 --layouts row/col
        diode-engine capture -- python program.py
        diode-engine explain --file captured.json
    """
    if torch and (not re.match(r"\d+\.\d+", torch) or version_of(torch) < OLDEST):
        raise click.UsageError(
            f"--torch takes a version from 2.10 on, such as 2.11, not {torch!r}."
        )
    if (k is None) is (file is None):  # K is the last
        raise click.UsageError("Give OP, M, N and K, or --file FILE.")
    context = click.get_current_context()
    for param in context.command.params:
        given = context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        if file is not None and given and param.name in _OF_ONE:
            raise click.UsageError(f"{param.opts[0]} is for one product: give OP, M, N and K.")
    model, device = model_and_hardware(reference, hardware)
    if file is not None:
        return _list_choices(file, model, device, torch)
    assert op and m and n and k  # noqa: PT018
    a, b = layouts.split("/") if layouts else (None, None)
    types = OPERATORS[op].dtypes
    dtype = dtype or (DType.BFLOAT16 if DType.BFLOAT16 in types else types[0])
    problem = Problem.make(
        op, m, n, k, "fp32" if dtype == "tf32" else dtype, B=batch, a_layout=a, b_layout=b,
        bias=bias, allow_tf32=dtype == "tf32", **_attributes(op, attributes),
    )  # fmt: skip
    found = _explain(problem, model, device, torch, top, batch_invariant=batch_invariant)
    return Result(found, _text(found))


def _list_choices(file: Path, model: ModelVersion, device: Hardware, torch: str) -> Result:
    """The choice for each problem of the file. In the document `taken` is None where the model can
    say nothing about a problem."""
    from diode_engine.problems.sources import problems_in

    chooser = Chooser(Predictor.load(model.folder, device), device)
    document, rows = [], []
    for problem in problems_in(file, seed=0):
        line: dict[str, Any] = {"problem": problem.to_dict(), "taken": None}
        row = [str(problem), "the library's", *[""] * 4]
        with contextlib.suppress(NothingError):
            _, choice = choose_offered(problem, chooser, torch)
            kernel, us = choice.candidates[0], choice.predicted_us[0]
            line |= {
                "taken": {**kernel.to_dict(), "why": str(choice.why)},
                "predicted_us": us,
                "library_us": choice.library_us,
                "confidence": choice.confidence,
            }
            times = (format_number(us), format_number(choice.library_us))
            row = [str(problem), str(kernel), *times, format_number(choice.confidence, ".2f"),
                   str(choice.why)]  # fmt: skip
        document.append(line)
        rows.append(row)
    if not document:
        raise NothingError(f"There are no problems in {file}.")
    header = ["problem", "kernel", "predicted µs", "library's µs", "sure", "why"]
    text = f"On {device.name}, by {model.reference}:\n{format_table(header, rows)}"
    return Result(document, text)


def _attributes(op: str, given: tuple[str, ...]) -> dict[str, Any]:
    """The attributes by their names. A text that is none of an attribute's values stays a text."""
    known = {attribute.name: attribute for attribute in OPERATORS[op].attributes}
    found: dict[str, Any] = {}
    for each in given:
        name, _, text = each.partition("=")
        if name not in known:
            names = ", ".join(known) or "none"
            raise click.UsageError(f"{op} has no attribute {name!r}; it has: {names}.")
        found[name] = next((v for v in known[name].values if str(v).lower() == text.lower()), text)
    return found


def model_and_hardware(
    reference: str | None, name: str | None, timed_on: Collection[Hardware] = ()
) -> tuple[ModelVersion, Hardware]:
    """The model, and the GPU that is asked about.

    The GPU is the one of this name, else the one in the model's name, else the named model's. Where
    neither is named, it is the one whose model is taken on this machine, else the only one of
    `timed_on`, else the only one that models are for. Raises NoSuchModelError where there is no
    such model, or several GPUs are left.
    """
    hardware = None if name is None else named_hardware(name)
    timed = {each.slug: each for each in timed_on}
    only = next(iter(timed.values())) if len(timed) == 1 else None
    if reference is not None:
        near = hardware or only  # where models for several GPUs have the name
        model = registry.resolve_for(reference, None if near is None else near.slug)
        if hardware is None and (meant := registry.gpu_named(reference) or only) is not None:
            hardware = model.manifest.record_for(meant).hardware
    elif hardware is None and (taken := find_model_here()) is not None:
        model, hardware = taken.model, taken.hardware
    else:
        hardware = hardware or only or _only_gpu()
        match = model_for(hardware)
        if match is None:
            raise NoSuchModelError(
                f"There is no model for {hardware.name} or a similar GPU; run `diode-engine tune` "
                "on it, or import a model."
            )
        model = match
    device = hardware or model.manifest.hardware
    warn_unlike(model, device)
    return model, device


def _only_gpu() -> Hardware:
    """The only GPU that models are for. Raises NoSuchModelError where there is none, or several."""
    known = registry.gpus_of_models(warn_unusable)
    if not known:
        raise NoSuchModelError("There is no model; train or import one.")
    if len(known) > 1:
        names = sorted(known)
        raise NoSuchModelError(
            f"There are models for several GPUs ({', '.join(names)}), and none of these GPUs is "
            f'in this machine. Name a GPU, as in --hardware "{names[-1]}".'
        )
    return next(iter(known.values()))


def _explain(
    problem: Problem, model: ModelVersion, device: Hardware, torch: str, top: int,
    *, batch_invariant: bool,
) -> dict[str, Any]:  # fmt: skip
    predictor = Predictor.load(model.folder, device)
    chooser = Chooser(predictor, device)
    prediction, choice = choose_offered(problem, chooser, torch)
    candidates, order = prediction.candidates, prediction.order.tolist()
    best = float(prediction.predicted_us[order[0]])
    roof, estimates = roofline(problem, candidates, device)

    def shown(rank: int, i: int) -> dict[str, Any]:
        us, estimate = float(prediction.predicted_us[i]), float(estimates[i])
        return {
            "rank": rank,
            **candidates[i].to_dict(),
            "predicted_us": us,
            "behind": us / best - 1,
            "estimate_us": None if math.isnan(estimate) else estimate,
        }

    rival = why.rival([candidates[i] for i in order])
    ranked = [shown(rank, i) for rank, i in enumerate(order[:top], 1)]
    compared = None
    if rival is not None:
        first, other = candidates[order[0]], candidates[order[rival]]
        parts = why.explain(predictor, problem, first, other)
        factors = {} if parts is None else parts.factors
        compared = {
            "with": shown(rival + 1, order[rival]),
            "method": METHOD,
            "factors": dict(factors),
            "resources": [
                None if needed is None else {**asdict(needed), "limits_us": dict(needed.limits_us)}
                for needed in (resources(problem, each, device) for each in (first, other))
            ],
        }
    invariant = _batch_invariant(problem, chooser, torch, choice) if batch_invariant else None
    to_time = prediction.count_to_reach(0.9)
    return {
        "problem": problem.to_dict(),
        "model": model.reference,
        "hardware": device.name,
        "candidates": len(candidates),
        "launchable": prediction.launchable,
        "confidence": prediction.confidence,
        "to_time": to_time,
        "reached": prediction.reaches and to_time and prediction.reaches[to_time - 1],
        "roofline": None if roof is None else asdict(roof),
        "taken": {**choice.candidates[0].to_dict(), "why": str(choice.why)},
        "ranked": ranked,
        "compared": compared,
        **({"batch_invariant": invariant} if batch_invariant else {}),
    }


def _batch_invariant(
    problem: Problem, chooser: Chooser, torch: str, unrestricted: Choice
) -> dict[str, Any]:
    """What the option diode_batch_invariant takes in place of the unrestricted choice."""
    try:
        choice, order = choose_invariant(problem, chooser, torch)
    except LeftToStock as refused:
        return {"taken": None, "why": str(refused)}
    return {
        "taken": choice.candidates[0].to_dict(),
        "why": str(choice.why),
        "order": str(order),
        "predicted_us": choice.predicted_us[0],
        "behind": choice.predicted_us[0] / unrestricted.predicted_us[0] - 1,
    }


def _name(candidate: Mapping[str, Any]) -> str:
    fields = {key: candidate[key] for key in ("template", "kwargs") if key in candidate}
    return str(Candidate.from_dict(fields))


def _text(found: Mapping[str, Any]) -> str:
    head = [f"{Problem.from_dict(found['problem'])} on {found['hardware']}, by {found['model']}"]
    if (roof := found["roofline"]) is not None:
        bound = "compute" if roof["compute_bound"] else "memory"
        head.append(
            f"At best {roof['time_us']:.3g} µs by the roofline: {bound}-bound, "
            f"{roof['intensity']:.0f} operations per byte."
        )
    head.append(f"{found['launchable']:,} of {found['candidates']:,} candidates can be launched.")
    if (sure := found["confidence"]) is not None:
        several, reached = found["to_time"], found["reached"]
        also = f", the best of the first {several} with {reached:.2f}" if several > 1 else ""
        head.append(f"The first is within 5 % of the best with a probability of {sure:.2f}{also}.")
    head.append(f"A compile takes {_name(found['taken'])} ({found['taken']['why']}).")
    if (invariant := found.get("batch_invariant")) is not None:
        head.append(_invariant_text(invariant))

    def cells(row: Mapping[str, Any]) -> list[str]:
        return [str(row["rank"]), _name(row), format_number(row["predicted_us"]),
                f"{row['behind']:+.1%}", format_number(row["estimate_us"])]  # fmt: skip

    rows = list(found["ranked"])
    compared = found["compared"]
    if compared is not None and compared["with"]["rank"] > len(rows):
        rows.append(compared["with"])
    parts = ["\n".join(head)]
    header = ["", "candidate", "predicted µs", "behind", "roofline estimate µs"]
    parts.append(format_table(header, [cells(row) for row in rows]))
    if compared is None:
        return "\n\n".join(parts)
    factors = [[f"{factor:.2f}×", group] for group, factor in compared["factors"].items()]
    against = (
        f"{_name(found['ranked'][0])} against {_name(compared['with'])}, predicted time by group"
    )
    parts.append(f"{against}:\n{format_table(['', 'features'], factors)}\n{METHOD}")
    if all(compared["resources"]):
        parts.append(_resources_text(compared["resources"]))
    return "\n\n".join(parts)


def _invariant_text(found: Mapping[str, Any]) -> str:
    if found["taken"] is None:
        return f"With diode_batch_invariant it takes the library's kernel: {found['why']}."
    return (
        f"With diode_batch_invariant it takes {_name(found['taken'])} ({found['why']}), predicted "
        f"{found['predicted_us']:.3g} µs, {found['behind']:+.1%}. It adds up by {found['order']}."
    )


def _resources_text(needed: Sequence[Mapping[str, Any]]) -> str:
    says = {
        "tiles": "tiles", "waves": "waves", "fill": "useful share of tiles and waves",
        "shared_bytes": "shared memory, bytes", "registers": "registers per thread, at least",
        "blocks": "blocks per multiprocessor",
    }  # fmt: skip
    rows = [[words, *(f"{round(x[key], 4):,.6g}" for x in needed)] for key, words in says.items()]
    rows += [
        [f"{limit}, µs", *(f"{each['limits_us'][limit]:.3g}" for each in needed)]
        for limit in needed[0]["limits_us"]
    ]
    return "By the formulas of the features (for a library's kernel, a guess):\n" + format_table(
        ["", "the first", "the other"], rows
    )
