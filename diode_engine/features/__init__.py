"""What a model sees of a problem and a candidate on a device: one row of float32 numbers for each
pair. The same function makes the rows for training and the rows for a choice at compile time. A row
has the same bits whichever other rows are computed with it.

A model's manifest names the columns that it was trained on, by their version and a hash of their
names. Whoever changes what a column holds gives it another version, and models of the version
before are refused.

Times are estimates in microseconds from the device's data sheet: a roofline with the waves of tiles
over multiprocessors, tiles that reach over the edge, the reach of L2 and the latency of loads that
nothing hides. They need not be right; they must grow and shrink as the real times do. The largest
of them is the *base* time; a model may learn the difference to it.

Sources: waves, tile and wave quantisation: NVIDIA, "Matrix Multiplication Background User's Guide";
the roofline: Williams, Waterman and Patterson, CACM 52(4), 2009; the order of tiles (GROUP_M):
Triton's matrix-multiplication tutorial; copy widths by alignment: kernels compiled for sm_90, see
`resources.MIN_COPY`.
"""

from __future__ import annotations

from diode_engine.features.feature_rows import (
    BASE,
    DTYPES,
    NAMES,
    NAMES_HASH,
    PROBLEM_COLUMN_COUNT,
    VERSION,
    SpaceFeatures,
    matrix,
    space,
    supported,
)

__all__ = [
    "BASE", "DTYPES", "NAMES", "NAMES_HASH", "PROBLEM_COLUMN_COUNT", "VERSION",
    "SpaceFeatures", "matrix", "space", "supported",
]  # fmt: skip
