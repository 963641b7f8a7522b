"""What a model sees of a problem and a candidate on a device: one row of float32 numbers for each
pair. The same function makes the rows for training and the rows for a choice at compile time. A row
has the same bits whichever other rows are computed with it.

A *feature set* is a list of named columns with the code that computes them, under a version. A
model's manifest names the set that it was trained on, by its version and a hash of the names. The
set is a module or a package here and a place in `SETS`; it stays as long as a supported model needs
it. The names of this package are those of `CURRENT`, the set of new models unless another is named.

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

from diode_engine.features.feature_set import DTYPES, FeatureSet, SpaceFeatures, supported
from diode_engine.features.version_2 import VERSION_2

__all__ = [
    "BASE", "CURRENT", "DTYPES", "NAMES", "NAMES_HASH", "PROBLEM_COLUMN_COUNT", "SETS", "VERSION",
    "FeatureSet", "SpaceFeatures", "matrix", "space", "supported",
]  # fmt: skip

SETS = {each.version: each for each in (VERSION_2,)}
CURRENT = VERSION_2
VERSION = CURRENT.version
NAMES = CURRENT.names
NAMES_HASH = CURRENT.names_hash
BASE = CURRENT.base
PROBLEM_COLUMN_COUNT = CURRENT.problem_column_count
matrix = CURRENT.matrix
space = CURRENT.space
