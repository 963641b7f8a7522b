"""Candidates that are held as columns say what their objects would."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateColumns, CandidateTable, encode

TILES = np.array([[16, 128], [32, 256], [64, 16], [5, 1], [2, 8], [8, 4]])
LISTED = (
    Candidate("aten::bias_addmm"),
    Candidate.make("decompose_k", k_split=4),
    Candidate("foreign"),
    Candidate("aten::bias_addmm"),
)


def _same(columns: CandidateColumns, other: CandidateColumns) -> bool:
    return all(
        np.array_equal(getattr(columns, field.name), getattr(other, field.name))
        for field in fields(CandidateColumns)
    )


def test_tiles_are_candidates() -> None:
    table = CandidateTable.tiled("triton::mm", TILES)
    assert table[1] == Candidate.make(
        "triton::mm",
        BLOCK_M=128, BLOCK_N=256, BLOCK_K=16, num_stages=1, num_warps=8, GROUP_M=4,
    )  # fmt: skip
    assert table[-1] == table[1]
    assert encode(table) is table.columns
    assert _same(table.columns, encode(tuple(table)))


def test_joined_tables_are_one() -> None:
    parts = [
        CandidateTable.make(LISTED[:2]),
        CandidateTable.tiled("triton::mm", TILES),
        CandidateTable.make(LISTED[2:]),
    ]
    table = CandidateTable.joined(parts)
    assert tuple(table) == tuple(candidate for part in parts for candidate in part)
    assert _same(table.columns, encode(tuple(table)))
    assert len(CandidateTable.joined(())) == 0


def test_a_part_is_taken() -> None:
    table = CandidateTable.joined(
        [CandidateTable.make(LISTED), CandidateTable.tiled("triton::bmm", TILES)]
    )
    which = np.array([True, False, False, True, False, True])
    part = table.take(which)
    assert tuple(part) == (table[0], table[3], table[5])
    assert np.array_equal(part.columns.block_m, table.columns.block_m[which])
    assert table.take(which) is part
    assert table.take(~which)[0] == table[1]
    assert table.take(np.ones(6, bool)) is table
