"""The shipped shapeset: the products that the harvest's programs ask for, at all their batches and
types."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import zstandard
from harvest_models import families
from harvest_models.programs import Program

from diode_engine.atomic import write_whole
from diode_engine.core.operand import DType
from diode_engine.core.operators import named
from diode_engine.core.problem import Problem
from diode_engine.inductor.lowering.candidates import problem_from
from diode_engine.problems.sources import moderate
from diode_engine.problems.sources.shapeset import COLUMNS
from diode_engine.store import read_dataset

ROOT = Path(__file__).parents[1]
# Products of layers written out by hand, held out before: (dataset, the families of its problems).
LAYERS = (
    ROOT / "datasets/nvidia-h200/real-layers-2026-11-22.packed.zst",
    ROOT / "benchmarks/results/real-layers-2026-11-22.json",
)
WRITTEN = "written"
KEY_DIGITS = 10  # of a problem's key, by which the second file of LAYERS names it
_HALF = (DType.BFLOAT16, DType.FLOAT16)


@dataclass
class _Place:
    programs: int = 0
    models: dict[tuple[str, str], None] = field(default_factory=dict)  # (name, family)


def scaled(asked: dict[str, Any], traced: int, batch: int) -> dict[str, Any]:
    """The products at another batch than the one that was traced. The traced batch is a prime;
    sizes and strides that have it as a factor grow with the batch."""

    def scale(value: int) -> int:
        return value if traced == 1 or value % traced else value // traced * batch

    return {
        **asked,
        "shapes": [[scale(n) for n in shape] for shape in asked["shapes"]],
        "strides": [[scale(n) for n in stride] for stride in asked["strides"]],
    }


def problem(asked: dict[str, Any]) -> Problem | None:
    """The problem, float32 without TF32; None where Diode has no such problem."""
    given = [getattr(torch, name) for name in asked["dtypes"]]
    found = problem_from(
        named(asked["op"]),
        asked["shapes"],
        asked["strides"],
        given,
        getattr(torch, asked["out_dtype"]),
    )
    return None if found is None else replace(found, allow_tf32=False)


def retyped(found: Problem, *, half: DType, tf32: bool) -> Problem:
    """The same product where the program runs in `half` instead of bfloat16, or with TF32 instead
    of float32 without it."""
    if found.dtype is DType.FLOAT32:
        return replace(found, allow_tf32=tf32)
    kept = found.out_dtype if found.out_dtype not in _HALF else half
    return replace(found, dtype=half if found.dtype in _HALF else found.dtype, out_dtype=kept)


def ways(program: Program) -> list[tuple[int, DType, bool]]:
    """(batch, type of half precision, whether with TF32) for each of the program's batches."""
    rng = random.Random(f"types of {program.name}")
    return [
        (batch, rng.choices(_HALF, (2, 1))[0], program.single and rng.random() < 0.5)
        for batch in program.batches
    ]


def at(row: dict[str, Any], batch: int, *, half: DType, tf32: bool) -> list[Problem]:
    """The different problems of the row's program with this batch, in these types."""
    found = [problem(scaled(asked, row["batch"], batch)) for asked in row["asked"]]
    return list(dict.fromkeys(retyped(p, half=half, tf32=tf32) for p in found if p is not None))


def write(
    rows: Iterable[dict[str, Any]], programs: dict[str, Program], path: Path, source: str
) -> dict[Problem, _Place]:
    """Writes the products of the rows, and those of LAYERS."""
    places: dict[Problem, _Place] = {}
    for row in sorted(rows, key=lambda row: str(row["program"])):
        program = programs[row["program"]]
        model = f"{program.library}/{program.model}", program.family
        for batch, half, tf32 in ways(program):
            for each in filter(moderate, at(row, batch, half=half, tf32=tf32)):
                place = places.setdefault(each, _Place())
                place.programs += 1
                place.models[model] = None
    for each, names in _layers():
        place = places.setdefault(each, _Place())
        place.programs += 1
        place.models.update({(f"{WRITTEN}/{name}", f"{WRITTEN}-{name}"): None for name in names})
    kinds = families.kinds()
    models = sorted({model for place in places.values() for model in place.models})
    numbers = {model: i for i, model in enumerate(models)}
    held = {
        family: {
            "kind": kinds.get(family, WRITTEN),
            "held_out": family in families.HELD_OUT or family not in kinds,
        }
        for family in sorted({family for _, family in models})
    }
    ordered = sorted(places, key=lambda p: tuple(map(str, p.to_dict().values())))
    shapes = (
        json.dumps(
            [*(p.to_dict()[name] for name in COLUMNS), places[p].programs,
             sorted(numbers[model] for model in places[p].models)],
            separators=(",", ":"),
        )
        for p in ordered
    )  # fmt: skip
    head = {
        "source": source, "families": held, "models": models,
        "columns": [*COLUMNS, "programs", "models"],
    }  # fmt: skip
    text = f'{json.dumps(head)[:-1]}, "shapes": [\n' + ",\n".join(shapes) + "\n]}\n"
    write_whole(path, zstandard.ZstdCompressor(19).compress(text.encode()))
    return places


def _layers() -> Iterator[tuple[Problem, list[str]]]:
    dataset, names = LAYERS
    of: dict[str, list[str]] = {}
    for name, keys in json.loads(names.read_text()).items():
        for key in keys:
            of.setdefault(key, []).append(name)
    for each in read_dataset(dataset).problems:
        if each.key[:KEY_DIGITS] in of:
            yield each, of[each.key[:KEY_DIGITS]]
