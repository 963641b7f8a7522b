"""Candidates as columns: what features and resource rules compute with.

A candidate is *known* where its template belongs to one of the families below and its kwargs
give what the family needs. Kwargs that are not named here are ignored; GROUP_M, num_stages
and num_warps take Inductor's and Triton's defaults where they are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import overload

import numpy as np
import numpy.typing as npt

from diode_engine.core.problem import Candidate


class Family(IntEnum):
    """Templates that are computed alike."""

    ATEN = 0  # an extern kernel: cuBLAS
    TRITON = 1  # the tiled template of mm, addmm, bmm and baddbmm
    TRITON_TMA = 2  # the persistent one, that loads through the tensor memory accelerator
    DECOMPOSE_K = 3  # K split into a batch, then summed


# By Inductor's uid; the same in torch 2.10 to 2.15.
TEMPLATES: Mapping[str, Family] = {
    "aten::mm": Family.ATEN,
    "aten::addmm": Family.ATEN,
    "aten::bias_addmm": Family.ATEN,
    "aten::bmm": Family.ATEN,
    "aten::baddbmm": Family.ATEN,
    "triton::mm": Family.TRITON,
    "triton::bmm": Family.TRITON,
    "triton::mm_persistent_tma": Family.TRITON_TMA,
    "decompose_k": Family.DECOMPOSE_K,
}

_NEEDED = {
    Family.ATEN: (),
    Family.TRITON: ("BLOCK_M", "BLOCK_N", "BLOCK_K"),
    Family.TRITON_TMA: ("BLOCK_M", "BLOCK_N", "BLOCK_K"),
    Family.DECOMPOSE_K: ("k_split",),
}
# BLOCK_* of a kernel without tiles of its own: those of a usual cuBLAS kernel, so that the
# columns that follow from a tile mean something there too.
_DEFAULTS = {
    "BLOCK_M": 128,
    "BLOCK_N": 128,
    "BLOCK_K": 64,
    "num_stages": 3,
    "num_warps": 4,
    "GROUP_M": 8,
    "k_split": 1,
}
_TILE = tuple(_DEFAULTS)[:6]
_PLACE = {name: place for place, name in enumerate(_DEFAULTS, start=2)}
_LARGEST = 1 << 20


@dataclass(frozen=True, eq=False)
class CandidateColumns:
    """n candidates. All columns are float32 [n] and hold whole numbers, but for the masks and
    `template`, each candidate's place among the distinct names of `templates`."""

    templates: tuple[str, ...]
    template: npt.NDArray[np.intp]
    known: npt.NDArray[np.bool_]
    tiled: npt.NDArray[np.bool_]  # a Triton template: the tile is its own
    family: npt.NDArray[np.float32]
    bias_addmm: npt.NDArray[np.float32]  # 1 for aten::bias_addmm
    block_m: npt.NDArray[np.float32]
    block_n: npt.NDArray[np.float32]
    block_k: npt.NDArray[np.float32]
    stages: npt.NDArray[np.float32]
    warps: npt.NDArray[np.float32]
    group_m: npt.NDArray[np.float32]
    k_split: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.known)

    def take(self, which: npt.NDArray[np.bool_]) -> CandidateColumns:
        """Those where `which` [n] is true."""
        columns = {field.name: getattr(self, field.name)[which] for field in fields(self)[1:]}
        return CandidateColumns(self.templates, **columns)


class CandidateTable(Sequence[Candidate]):
    """Candidates that are held as columns. `make` makes the one at a place, which is done when it
    is asked for: of the hundreds that are ranked a few are taken. Immutable."""

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
    def of(cls, candidates: Sequence[Candidate]) -> CandidateTable:
        """Candidates that are there already."""
        if isinstance(candidates, cls):
            return candidates
        return cls(encode(candidates), tuple(candidates).__getitem__)

    @classmethod
    def tiled(cls, template: str, tiles: npt.NDArray[np.integer]) -> CandidateTable:
        """Those of a Triton template of a known family: `tiles` is [6, n], the rows BLOCK_M,
        BLOCK_N, BLOCK_K, num_stages, num_warps and GROUP_M."""

        def make(place: int) -> Candidate:
            return Candidate.make(
                template, **dict(zip(_TILE, tiles[:, place].tolist(), strict=True))
            )

        n = tiles.shape[1]
        columns = np.concatenate(
            [
                np.full((1, n), TEMPLATES[template]),  # family
                np.zeros((1, n)),  # bias_addmm
                tiles,
                np.ones((1, n)),  # k_split
            ],
            dtype=np.float32,
        )  # fmt: skip
        columns.flags.writeable = False
        every = np.ones(n, np.bool_)
        return cls(
            CandidateColumns((template,), np.zeros(n, np.intp), every, every, *columns), make
        )

    @classmethod
    def joined(cls, tables: Sequence[CandidateTable]) -> CandidateTable:
        """All of the tables, in their order."""
        if len(tables) <= 1:
            return tables[0] if tables else cls.of(())
        starts = np.cumsum([0, *map(len, tables)])

        def make(place: int) -> Candidate:
            table = int(np.searchsorted(starts, place, "right")) - 1
            return tables[table][place - int(starts[table])]

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


def _row(candidate: Candidate, default: tuple[float, ...]) -> tuple[float, ...]:
    family = TEMPLATES.get(candidate.template)
    if family is None:
        return default
    row = list(default)
    row[0] = family
    row[1] = candidate.template == "aten::bias_addmm"
    needed = len(_NEEDED[family])
    for name, value in candidate.kwargs:
        place = _PLACE.get(name)
        if place is None:
            continue
        if type(value) is not int or not 1 <= value <= _LARGEST:
            return default
        row[place] = value
        needed -= name in _NEEDED[family]
    return tuple(row) if needed == 0 else default


def _encode(candidates: tuple[Candidate, ...]) -> CandidateColumns:
    default = (-1.0, 0.0, *map(float, _DEFAULTS.values()))
    rows: npt.NDArray[np.float32] = np.array(
        [_row(candidate, default) for candidate in candidates], dtype=np.float32
    ).reshape(len(candidates), len(default))
    columns = np.ascontiguousarray(rows.T)
    columns.flags.writeable = False
    family = columns[0]
    tiled = (family == Family.TRITON) | (family == Family.TRITON_TMA)
    templates = tuple(dict.fromkeys(candidate.template for candidate in candidates))
    places = {name: place for place, name in enumerate(templates)}
    template = np.array([places[candidate.template] for candidate in candidates], np.intp)
    return CandidateColumns(templates, template, family >= 0, tiled, *columns)


_recent: tuple[tuple[tuple[Candidate, ...], CandidateColumns], ...] = ()
_KEPT = 16


def encode(candidates: Sequence[Candidate]) -> CandidateColumns:
    """The columns of these candidates; those of recently seen sequences are kept, since the
    same few spaces are asked about again and again."""
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
