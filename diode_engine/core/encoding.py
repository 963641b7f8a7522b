"""Candidates as columns of numbers, from which features and resource rules are computed.

A candidate is *known* where its template is in the table (core/templates) and its kwargs have all
that the template requires. Kwargs for which the template has no column are ignored. GROUP_M,
num_stages and num_warps have the defaults of Inductor and Triton where they are missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import overload

import numpy as np
import numpy.typing as npt

from diode_engine.core.candidate import Candidate
from diode_engine.core.templates import TEMPLATES, template_of
from diode_engine.core.templates.template import COLUMNS, Template

_TILE = tuple(COLUMNS)[:6]
_MAX_VALUE = 1 << 20


def _mask(of_template: Callable[[Template], bool]) -> cached_property[npt.NDArray[np.bool_]]:
    """[n] what holds for the candidates' templates; false where a candidate is not known."""

    def mask(columns: CandidateColumns) -> npt.NDArray[np.bool_]:
        holds = [of_template(template_of(name)) for name in columns.templates]
        return np.array(holds, np.bool_)[columns.template] & columns.known

    return cached_property(mask)


@dataclass(frozen=True, eq=False)
class CandidateColumns:
    """n candidates. `templates` are the names of their templates, each once; `template` [n] is the
    index of each candidate's template in it, and `known` is a mask [n]. All other columns are
    float32 [n] with whole numbers. Properties that say what a template is (`tma`, `persistent`, …)
    are masks [n], false where the candidate is not known."""

    templates: tuple[str, ...]
    template: npt.NDArray[np.intp]
    known: npt.NDArray[np.bool_]
    block_m: npt.NDArray[np.float32]
    block_n: npt.NDArray[np.float32]
    block_k: npt.NDArray[np.float32]
    stages: npt.NDArray[np.float32]
    warps: npt.NDArray[np.float32]
    group_m: npt.NDArray[np.float32]
    k_split: npt.NDArray[np.float32]

    # Fields of Template.
    extern = _mask(lambda template: template.extern)
    bias_vector = _mask(lambda template: template.bias_vector)
    tiled = _mask(lambda template: template.tiled)
    tma = _mask(lambda template: template.tma)
    persistent = _mask(lambda template: template.persistent)
    # Whether the candidate says into how many parts K is split.
    splits_k = _mask(lambda template: "k_split" in template.names)

    def __len__(self) -> int:
        return len(self.known)

    def take(self, which: npt.NDArray[np.bool_]) -> CandidateColumns:
        """Those where `which` [n] is true."""
        columns = {field.name: getattr(self, field.name)[which] for field in fields(self)[1:]}
        return CandidateColumns(self.templates, **columns)


class CandidateTable(Sequence[Candidate]):
    """Candidates as columns. `make(i)` makes the record of candidate i when it is asked for:
    hundreds of candidates are ranked, and records of a few are needed. Immutable."""

    def __init__(self, columns: CandidateColumns, make: Callable[[int], Candidate]) -> None:
        self.columns = columns
        self._make = make
        self._taken: dict[bytes, CandidateTable] = {}

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, place: int | slice) -> Candidate | tuple[Candidate, ...]:
        places = range(len(self))[place]
        if isinstance(places, int):
            return self._make(places)
        return tuple(map(self._make, places))

    def take(self, which: npt.NDArray[np.bool_]) -> CandidateTable:
        """Those where `which` [n] is true; the same table again for the same ones."""
        if which.all():
            return self
        key = which.tobytes()
        taken = self._taken.get(key)
        if taken is None:
            places = np.flatnonzero(which).tolist()
            taken = CandidateTable(self.columns.take(which), lambda place: self[places[place]])
            if len(self._taken) >= _KEPT:
                self._taken.clear()
            self._taken[key] = taken
        return taken

    @classmethod
    def make(cls, candidates: Sequence[Candidate]) -> CandidateTable:
        """A table of candidates that exist as records already."""
        if isinstance(candidates, cls):
            return candidates
        return cls(encode(candidates), tuple(candidates).__getitem__)

    @classmethod
    def tiled(cls, template: str, tiles: npt.NDArray[np.integer]) -> CandidateTable:
        """Candidates of one tiled template: `tiles` is [6, n], with the rows BLOCK_M, BLOCK_N,
        BLOCK_K, num_stages, num_warps and GROUP_M."""

        names = TEMPLATES[template].names
        parameters = [names[column] for column in _TILE]

        def make(place: int) -> Candidate:
            values = tiles[:, place].tolist()
            return Candidate.make(template, **dict(zip(parameters, values, strict=True)))

        n = tiles.shape[1]
        columns = np.concatenate([tiles, np.ones((1, n))], dtype=np.float32)  # k_split
        columns.flags.writeable = False
        every = np.ones(n, np.bool_)
        return cls(CandidateColumns((template,), np.zeros(n, np.intp), every, *columns), make)

    @classmethod
    def joined(cls, tables: Sequence[CandidateTable]) -> CandidateTable:
        """All of the tables, in their order."""
        if len(tables) <= 1:
            return tables[0] if tables else cls.make(())
        starts = [0, *accumulate(map(len, tables))]

        def make(place: int) -> Candidate:
            table = bisect_right(starts, place) - 1
            return tables[table][place - starts[table]]

        parts = [table.columns for table in tables]
        templates = tuple(dict.fromkeys(name for part in parts for name in part.templates))
        number = {name: place for place, name in enumerate(templates)}
        template = np.concatenate(
            [
                np.array([number[name] for name in part.templates], np.intp)[part.template]
                for part in parts
            ]
        )
        rest = (
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(CandidateColumns)[2:]
        )
        return cls(CandidateColumns(templates, template, *rest), make)


def _row(candidate: Candidate, unknown: tuple[float, ...]) -> tuple[float, ...]:
    """1.0 and the candidate's values of COLUMNS; `unknown` where it is not known. `unknown` is 0.0
    and the default values."""
    template = TEMPLATES.get(candidate.template)
    if template is None:
        return unknown
    row = [1.0, *unknown[1:]]
    places, required = template.places, template.required
    missing = len(required)
    for name, value in candidate.kwargs:
        place = places.get(name)
        if place is None:
            continue
        if type(value) is not int or not 1 <= value <= _MAX_VALUE:
            return unknown
        row[place + 1] = value
        missing -= name in required
    return tuple(row) if missing == 0 else unknown


def _encode(candidates: tuple[Candidate, ...]) -> CandidateColumns:
    unknown = (0.0, *map(float, COLUMNS.values()))
    rows: npt.NDArray[np.float32] = np.array(
        [_row(candidate, unknown) for candidate in candidates], dtype=np.float32
    ).reshape(len(candidates), len(unknown))
    columns = np.ascontiguousarray(rows.T)
    columns.flags.writeable = False
    templates = tuple(dict.fromkeys(candidate.template for candidate in candidates))
    places = {name: place for place, name in enumerate(templates)}
    template = np.array([places[candidate.template] for candidate in candidates], np.intp)
    return CandidateColumns(templates, template, columns[0] > 0, *columns[1:])


_recent: tuple[tuple[tuple[Candidate, ...], CandidateColumns], ...] = ()
_KEPT = 16


def encode(candidates: Sequence[Candidate]) -> CandidateColumns:
    """The columns of these candidates. Those of the last _KEPT sequences are remembered, since the
    same few spaces are encoded again and again."""
    global _recent
    if isinstance(candidates, CandidateTable):
        return candidates.columns
    asked = tuple(candidates)
    for seen, columns in _recent:
        if seen == asked:
            return columns
    columns = _encode(asked)
    # One assignment: another thread sees the old tuple or the new one, either of them whole.
    _recent = ((asked, columns), *_recent[: _KEPT - 1])
    return columns
