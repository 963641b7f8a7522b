"""The harvest: products of real programs, which Diode ships, with the models and families of models
that they were found in. Some families are held out.

The file has matrix products of models of transformers, timm and torchvision, as Inductor asks for
them, and those of benchmarks/results/real-layers-….json. It is a shapeset with more columns
(docs/collection.md describes it; docs/notes/experiments.md says how it was made).
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
class HarvestFamily:
    """Models of one architecture. `held_out`: no model may be trained on its products."""

    kind: str  # decoder, experts, encoder, encoder-decoder, image, sound, written
    held_out: bool


@dataclass(frozen=True)
class Occurrence:
    """Where a product was found."""

    # How many programs have it; a program is a model at one batch, length and type, forward alone
    # or with its backward.
    programs: int
    models: tuple[str, ...]  # by the names that their libraries have for them
    families: frozenset[str]


@dataclass(frozen=True)
class Harvest:
    """The families by their names, and where each product was found."""

    families: Mapping[str, HarvestFamily]
    found: Mapping[Problem, Occurrence]


@cache
def harvest() -> Harvest:
    """The shipped harvest."""
    shipped = resources.files("diode_engine.problems").joinpath("shapes/harvest.json.zst")
    return parse_harvest(shipped.read_bytes(), shipped.name)


def parse_harvest(data: bytes, name: str) -> Harvest:
    """The harvest in a compressed shapeset; `name` is what errors call it. Raises DatasetError."""
    try:
        text = zstandard.ZstdDecompressor().decompress(data, max_output_size=LIMITS.bytes)
        return _harvest(parse_json(text, LIMITS))
    except (Malformed, zstandard.ZstdError, LookupError, TypeError, ValueError) as error:
        raise DatasetError(f"{name} is no harvest: {error}") from None


def _harvest(document: Any) -> Harvest:
    families = {name: HarvestFamily(**fields) for name, fields in document["families"].items()}
    models = [tuple(row) for row in document["models"]]
    columns = document["columns"]
    found = {}
    for row in document["shapes"]:
        fields = dict(zip(columns, row, strict=True))
        programs, places = fields.pop("programs"), fields.pop("models")
        found[Problem.from_dict(fields)] = Occurrence(
            programs,
            tuple(models[i][0] for i in places),
            frozenset(models[i][1] for i in places),
        )
    return Harvest(families, found)


def families_of(problem: Problem) -> frozenset[str]:
    """The families in whose programs a product of these sizes was found; empty where there is none.
    Only the sizes are compared, for the reason that `named_layers.models_of` gives."""
    return _owners().get(tuple(problem.sizes.values()), frozenset())


def is_of_held_out_family(problem: Problem) -> bool:
    """Whether one of the held-out families has a product of these sizes: no model may be trained on
    it."""
    families = harvest().families
    return any(families[name].held_out for name in families_of(problem))


@cache
def _owners() -> Mapping[tuple[int, ...], frozenset[str]]:
    owners: dict[tuple[int, ...], frozenset[str]] = {}
    for problem, found in harvest().found.items():
        sizes = tuple(problem.sizes.values())
        owners[sizes] = owners.get(sizes, frozenset()) | found.families
    return owners
