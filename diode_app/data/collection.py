"""A collection before it starts: the options that a person chose, and the plan that follows from
them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diode_engine.core.operators import OPERATORS
from diode_engine.errors import CollectionError, DatasetError

if TYPE_CHECKING:
    from diode_engine.core.problem import Problem
    from diode_engine.problems.sources import Wanted
    from diode_engine.store import Store

OPS = tuple(OPERATORS)
TYPES = ("bf16", "fp16", "tf32", "fp32", "e4m3", "e5m2", "int8")
LAYOUTS = ("row/row", "row/col", "col/row", "col/col")
SPACES = ("EXHAUSTIVE", "DEFAULT")
# The values of the form's fields where a person has changed nothing.
USUAL = {
    "source": "", "file": "", "problems": "300", "ops": ",".join(OPS), "dtypes": ",".join(TYPES),
    "layouts": ",".join(LAYOUTS), "search_space": "EXHAUSTIVE", "budget": "", "whole": "0",
    "direct": "", "compiles": "", "gpu": "", "seed": "0",
}  # fmt: skip
MAX_PROBLEMS = 20_000  # in a plan; counting the candidates of so many takes some seconds
_SEVERAL = {"source", "file", "gpu"}


@dataclass(frozen=True)
class SourceKind:
    """A source of problems: what it draws, and its parameters with their defaults."""

    name: str
    draws: str
    parameters: str


def source_kinds() -> tuple[SourceKind, ...]:
    """All sources, described in the engine's own words."""
    from diode_engine.problems.sources import SOURCES

    return tuple(
        SourceKind(
            name,
            " ".join((kind.__doc__ or "").replace("`", "").split()),
            ",".join(f"{f.name}={_plain(f.default)}" for f in dataclasses.fields(kind)),
        )
        for name, kind in SOURCES.items()
    )


def _plain(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def spec_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The options of `diode-engine collect` for the fields' values, without those that have their
    default. Raises ValueError where the quotes in a value do not match."""
    spec: dict[str, Any] = {}
    for name, value in values.items():
        if value == USUAL[name]:
            continue
        if name in _SEVERAL:
            words = shlex.split(value)
            spec[name] = list(map(_path, words)) if name == "file" else words
        else:
            spec[name] = True if name == "direct" else value
    return spec


def _path(given: str) -> str:
    return str(Path(given).expanduser().absolute())


@dataclass(frozen=True)
class Share:
    """A part of a plan with something in common."""

    name: str
    problems: int
    candidates: int


@dataclass(frozen=True)
class PlanView:
    """What a collection will time at most: what the store has is not timed again. `seconds` are for
    `gpus` GPUs, at a rate that is `known_from` somewhere."""

    problems: int
    candidates: int
    compiles: int
    seconds: float
    known_from: str
    gpus: int
    by_op: tuple[Share, ...]
    by_type: tuple[Share, ...]
    by_selection: tuple[Share, ...]


@dataclass(frozen=True)
class CollectionPlan:
    """A plan, or a sentence for each field that has none."""

    plan: PlanView | None
    mistakes: Mapping[str, str]


def planned(store: Store, values: Mapping[str, str], gpus: int) -> CollectionPlan:
    """The plan for values that have no mistakes of their own, on so many GPUs. Needs no torch."""
    from diode_engine.collect.planning.plan import Plan

    seed = int(values["seed"])
    budget, compiles = values["budget"], values.get("compiles")
    try:
        problems = _problems(values, seed)
    except _MistakeError as error:
        return CollectionPlan(None, {error.field: str(error)})
    if not problems:
        says = "There are no such problems: allow other operators, types or layouts."
        return CollectionPlan(None, {"source": says})
    chosen = values["gpu"].split()
    plan = Plan.of(
        problems,
        budget=int(budget) if budget else None,
        whole=int(values["whole"]),
        compiles=int(compiles) if compiles else None,
        default=values["search_space"] == "DEFAULT",
    )
    gpus = len(chosen) or max(gpus, 1)
    summary = plan.summary(_rate(store, gpus, direct=bool(values["direct"])))

    def shares(group: str) -> tuple[Share, ...]:
        counts = summary[group].items()
        return tuple(Share(name, n["problems"], n["candidates"]) for name, n in counts)

    return CollectionPlan(
        PlanView(
            problems=summary["problems"],
            candidates=summary["candidates"],
            compiles=summary["compiles"],
            seconds=summary["seconds"],
            known_from=summary["known_from"],
            gpus=gpus,
            by_op=shares("by_op"),
            by_type=shares("by_type"),
            by_selection=shares("by_selection"),
        ),
        {},
    )


class _MistakeError(Exception):
    def __init__(self, field: str, says: str) -> None:
        super().__init__(says)
        self.field = field


def _problems(values: Mapping[str, str], seed: int) -> list[Problem]:
    from diode_engine.problems.sources import Wanted, parse_source

    def names(field: str) -> tuple[str, ...]:
        value = values[field]
        return () if value == USUAL[field] else tuple(value.split(","))

    wanted = Wanted(names("ops"), names("dtypes"), names("layouts"))
    sources = tuple(values["source"].split())
    try:
        for source in sources:
            parse_source(source)
    except CollectionError as error:
        raise _MistakeError("source", str(error)) from None
    found: list[Problem] = []
    try:
        for file in map(Path, map(_path, shlex.split(values["file"]))):
            found += _in_file(file, file.stat().st_mtime_ns, seed)
    except OSError as error:
        raise _MistakeError("file", f"{error.filename}: {error.strerror}.") from None
    except DatasetError as error:
        raise _MistakeError("file", str(error)) from None
    found = [problem for problem in found if wanted.holds(problem)]
    if sources or not values["file"]:
        found += _drawn(int(values["problems"]), seed, sources, wanted)
    return list(dict.fromkeys(found))


@lru_cache(maxsize=4)  # while a person changes other fields
def _in_file(path: Path, _changed: int, seed: int) -> Sequence[Problem]:
    from diode_engine.problems.sources import problems_in

    return problems_in(path, seed)


@lru_cache(maxsize=4)
def _drawn(count: int, seed: int, sources: tuple[str, ...], wanted: Wanted) -> Sequence[Problem]:
    from diode_engine.problems.sources import mixed

    return mixed(count, seed, sources, wanted)


def _rate(store: Store, gpus: int, *, direct: bool) -> Any:
    from diode_engine.collect.local import cores
    from diode_engine.collect.planning.plan import expected_rate
    from diode_engine.store.run_query import runs

    earlier = [
        (run.spec, run.progress or {})
        for run in reversed(runs(store, "kind:collect"))
        if bool(run.spec.get("direct")) == direct
    ]
    return expected_rate(earlier, gpus=gpus, cores=cores())
