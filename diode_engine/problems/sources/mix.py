"""The sources by name, and mixes of several sources."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError
from diode_engine.problems.sources.eight_bit import EightBit
from diode_engine.problems.sources.experts import GroupedExperts
from diode_engine.problems.sources.harvest import Harvested
from diode_engine.problems.sources.layers import Attention, InnerBatch, Transformers, Zoo
from diode_engine.problems.sources.shapeset import is_shapeset, read_shapeset
from diode_engine.problems.sources.sizes import LogNormal, Odd, Powers, SizeGrid, Skinny, Widths
from diode_engine.problems.sources.wanted import Wanted

# Above these a bad kernel takes a second, and cuBLAS is the answer anyway.
MAX_FLOPS = {DType.FLOAT32: 4e11}
MAX_FLOPS_16_BIT = 4.5e12
MAX_BYTES = 2**31
# A source that has given nothing new for so many draws is taken to be at its end.
MAX_STALE_DRAWS = 20_000


class Source(Protocol):
    """A source of problems. Its fields are its parameters."""

    def problems(self, seed: int) -> Iterator[Problem]:
        """The problems, in an order that depends on the seed. Some sources never end, and repeat
        themselves."""


SOURCES: Mapping[str, type[Any]] = {
    "transformers": Transformers,
    "zoo": Zoo,
    "log-normal": LogNormal,
    "attention": Attention,
    "inner-batch": InnerBatch,
    "skinny": Skinny,
    "widths": Widths,
    "odd": Odd,
    "grid": SizeGrid,
    "powers": Powers,
    "harvest": Harvested,
    "eight-bit": EightBit,
    "experts": GroupedExperts,
}
# What is drawn where nobody names a source, and each one's share.
DEFAULT_SHARES = {"transformers": 0.38, "zoo": 0.28, "log-normal": 0.24, "attention": 0.10}


def parse_source(text: str) -> Source:
    """The source that a text describes: "name" or "name:parameter=value,…". The items of a list are
    separated by slashes, as in "grid:m=1/16/64,n=4096,k=4096".

    Raises CollectionError where there is no such source or parameter, or the value is not possible.
    """
    name, _, rest = text.partition(":")
    kind = SOURCES.get(name)
    if kind is None:
        raise CollectionError(f"There is no source {name!r}; there are {', '.join(SOURCES)}.")
    hints = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        parameter, _, value = part.partition("=")
        if parameter not in known:
            raise CollectionError(
                f"The source {name} has no parameter {parameter!r}; it has "
                f"{', '.join(known) or 'none'}."
            )
        try:
            given[parameter] = _value(value, hints[parameter])
        except ValueError:
            raise CollectionError(
                f"The source {name} cannot have {parameter}={value}; it must be "
                f"{_EXPECTED[hints[parameter]]}."
            ) from None
    source: Source = kind(**given)
    return source


_EXPECTED: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a name",
    tuple[int, ...]: "whole numbers separated by slashes",
    tuple[str, ...]: "names separated by slashes",
}


def _value(text: str, kind: Any) -> Any:
    if kind == tuple[int, ...]:
        return tuple(int(item) for item in text.split("/"))
    if kind == tuple[str, ...]:
        return tuple(text.split("/"))
    return kind(text)


def mixed(
    count: int, seed: int, sources: Sequence[str] = (), wanted: Wanted | None = None
) -> list[Problem]:
    """`count` different problems from these sources (in the form of `parse_source`), in random
    order; only problems of `moderate` size, and only `wanted` ones. Each source has an equal share;
    where no source is named, DEFAULT_SHARES are drawn. There are fewer problems where the sources
    have no more. Raises what `parse_source` does."""
    wanted = wanted or Wanted()
    shares = dict.fromkeys(sources, 1.0) or dict(DEFAULT_SHARES)
    streams = {name: parse_source(name).problems(seed) for name in shares}
    stale = dict.fromkeys(streams, 0)
    rng = random.Random(f"mixed/{seed}")
    taken: dict[Problem, None] = {}
    while len(taken) < count and streams:
        name = rng.choices(list(streams), [shares[n] for n in streams])[0]
        problem = next(streams[name], None)
        if (
            problem is not None
            and moderate(problem)
            and wanted.holds(problem)
            and problem not in taken
        ):
            taken[problem] = None
            stale[name] = 0
            continue
        stale[name] += 1
        if problem is None or stale[name] > MAX_STALE_DRAWS:
            del streams[name]
    return list(taken)


def problems_in(path: Path, seed: int) -> list[Problem]:
    """The problems of a file, which is a shapeset or a dataset. Raises DatasetError where it is
    neither, or is malformed."""
    if is_shapeset(path):
        return read_shapeset(path).problems(seed)
    from diode_engine.store.datasets.reading import read_dataset

    return list(read_dataset(path, times_required=False).problems)


def moderate(problem: Problem) -> bool:
    """Whether the operands fit a GPU, and even a bad kernel takes less than a second."""
    p = problem
    limit = MAX_FLOPS.get(p.dtype, MAX_FLOPS_16_BIT)
    if p.allow_tf32:
        limit *= 2
    moved = p.moved_bytes[0] + 3 * math.prod(p.output_size) * p.dtype.itemsize
    return p.flops <= limit and moved <= MAX_BYTES
