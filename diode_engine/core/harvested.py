"""The products of real programs that Diode ships, by model and family, and which families are held
out.

`python benchmarks/harvest.py` makes the file: matrix products of models of transformers, timm and
torchvision, as Inductor asks for them, and those of benchmarks/results/real-layers-….json. It is a
shapeset with more in it (docs/collection.md describes it), and all that a split by families needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import zstandard

from diode_engine.core.problem import Problem
from diode_engine.documents import Limits, Malformed, parse_json
from diode_engine.errors import DatasetError

LIMITS = Limits(bytes=64 << 20, containers=1 << 20, values=1 << 24)


@dataclass(frozen=True)
class Family:
    """Models of one architecture. `held_out`: no model may learn from its products."""

    kind: str  # decoder, experts, encoder, encoder-decoder, image, sound, written
    held_out: bool


@dataclass(frozen=True)
class Found:
    """Where a product was found: in so many programs (a model at one batch, length and type,
    forward alone or with its backward), of these models, by the names of their libraries."""

    programs: int
    models: tuple[str, ...]
    families: frozenset[str]
    held_out: bool  # whether one of the families is


@dataclass(frozen=True)
class Harvest:
    families: Mapping[str, Family]
    found: Mapping[Problem, Found]


@cache
def harvest() -> Harvest:
    """The shipped one."""
    shipped = resources.files("diode_engine.core").joinpath("shapes/harvest.json.zst")
    return parse_harvest(shipped.read_bytes(), shipped.name)


def parse_harvest(data: bytes, name: str) -> Harvest:
    """The harvest in a compressed shapeset; `name` is what errors call it. Raises DatasetError."""
    try:
        text = zstandard.ZstdDecompressor().decompress(data, max_output_size=LIMITS.bytes)
        return _harvest(parse_json(text, LIMITS))
    except (Malformed, zstandard.ZstdError, LookupError, TypeError, ValueError) as error:
        raise DatasetError(f"{name} is no harvest: {error}") from None


def _harvest(document: Any) -> Harvest:
    families = {name: Family(**fields) for name, fields in document["families"].items()}
    models = [tuple(row) for row in document["models"]]
    columns = document["columns"]
    found = {}
    for row in document["shapes"]:
        fields = dict(zip(columns, row, strict=True))
        programs, places = fields.pop("programs"), fields.pop("models")
        its = frozenset(models[i][1] for i in places)
        found[Problem.from_dict(fields)] = Found(
            programs,
            tuple(models[i][0] for i in places),
            its,
            any(families[name].held_out for name in its),
        )
    return Harvest(families, found)


def families_of(problem: Problem) -> frozenset[str]:
    """The families in whose programs a product of the same sizes, types and strides was found,
    whatever its bias; empty where none was."""
    return _twins().get(_twin(problem), (frozenset(), False))[0]


def held_out_family(problem: Problem) -> bool:
    """Whether one of the held-out families has a product of the same sizes, types and strides,
    whatever its bias: no model may learn from it."""
    return _twins().get(_twin(problem), (frozenset(), False))[1]


@cache
def _twins() -> Mapping[tuple[Any, ...], tuple[frozenset[str], bool]]:
    twins: dict[tuple[Any, ...], tuple[frozenset[str], bool]] = {}
    for problem, found in harvest().found.items():
        families, held_out = twins.get(_twin(problem), (frozenset(), False))
        twins[_twin(problem)] = families | found.families, held_out or found.held_out
    return twins


def _twin(p: Problem) -> tuple[Any, ...]:
    return (p.B, p.M, p.N, p.K, p.dtype, p.out_dtype, p.allow_tf32, p.a, p.b)
