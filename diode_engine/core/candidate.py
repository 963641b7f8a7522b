"""A kernel that can compute a product. It is immutable, validated when it is made, and has a key
made of its content."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any

from diode_engine.core.checks import require
from diode_engine.core.content_key import content_key
from diode_engine.core.operators.specification import Scalar
from diode_engine.core.templates import template_of
from diode_engine.core.templates.template import TILE
from diode_engine.errors import RecordError

KWARG_INTS = range(-(2**63), 2**64)  # the whole numbers that msgpack can hold


@dataclass(frozen=True)
class Candidate:
    """A kernel that can compute a problem: a template of Inductor and what it is given.

    `template` is Inductor's uid (`aten::mm`, `triton::mm`, `triton::mm_persistent_tma`,
    `decompose_k`, …) and `kwargs` its tunable parameters (BLOCK_M, num_warps, k_split, …).
    What follows from the problem (EVEN_K, ALLOW_TF32, ACC_TYPE) is not among them.
    """

    template: str
    kwargs: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        if not (isinstance(self.template, str) and 0 < len(self.template) <= 200):
            raise RecordError(f"A candidate's template is {self.template!r}; it must be a name.")
        require(isinstance(self.kwargs, tuple), "A candidate's kwargs must be (name, value)s.")
        for item in self.kwargs:
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
                raise RecordError(f"A candidate's kwarg is {item!r}; it must be a (name, value).")
            name, value = item
            if not (value is None or isinstance(value, (bool, int, float, str))):
                raise RecordError(
                    f"A candidate's kwarg {name} is {value!r}; it must be a number, a text, true, "
                    "false or null."
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise RecordError(f"A candidate's kwarg {name} is not finite.")
            if isinstance(value, int) and value not in KWARG_INTS:
                raise RecordError(
                    f"A candidate's kwarg {name} is a whole number of more than 64 bits."
                )
        ordered = tuple(sorted(self.kwargs, key=lambda item: item[0]))
        require(len({name for name, _ in ordered}) == len(ordered), "A candidate repeats a kwarg.")
        object.__setattr__(self, "kwargs", ordered)

    @classmethod
    def make(cls, template: str, **kwargs: Scalar) -> Candidate:
        return cls(template, tuple(kwargs.items()))

    @cached_property
    def config(self) -> Mapping[str, Scalar]:
        """The kwargs as a mapping."""
        return MappingProxyType(dict(self.kwargs))

    @cached_property
    def tile(self) -> Mapping[str, Any] | None:
        """The kwargs of a tiled kernel, by the names of their columns in the table of templates
        (block_m, block_n, block_k, stages, warps, …); None for other kernels."""
        return template_of(self.template).tile_of(self.config)

    def to_dict(self) -> dict[str, Any]:
        return {"template": self.template, "kwargs": dict(self.kwargs)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Candidate:
        """Raises RecordError on a missing, unknown or impossible field."""
        unknown = sorted(set(fields) - {"template", "kwargs"})
        require(not unknown, f"A candidate has unknown fields: {', '.join(unknown)}.")
        require("template" in fields, "A candidate lacks the field template.")
        kwargs = fields.get("kwargs", {})
        require(isinstance(kwargs, Mapping), "A candidate's kwargs must be a mapping.")
        return cls(fields["template"], tuple(kwargs.items()))

    @cached_property
    def key(self) -> str:
        """Content key: 32 hex digits."""
        return content_key("candidate", self.to_dict())

    @property
    def is_extern(self) -> bool:
        """Whether a library (cuBLAS through ATen) computes it, not a generated kernel."""
        return template_of(self.template).extern

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (self.template, *chain.from_iterable(self.kwargs))

    def __str__(self) -> str:
        if self.tile is not None:
            block = "×".join(str(self.tile.get(column)) for column in TILE)
            return f"{self.template} {block} s{self.tile.get('stages')} w{self.tile.get('warps')}"
        rest = " ".join(f"{name}={value}" for name, value in self.kwargs)
        return f"{self.template} {rest}".rstrip()


@lru_cache(maxsize=1 << 14, typed=True)
def _known(template: str, *kwargs: Any) -> Candidate:
    """The candidate of these names and values in turn. Equal ones that come from other processes
    are one object here, so that what is cached in it (its key) is computed once."""
    return Candidate(template, tuple(zip(kwargs[::2], kwargs[1::2], strict=True)))
