"""What a model sees of a problem and a candidate on a device: one row of float32 each.

The same function makes the rows that are trained on and the rows that are asked about at
compile time; a row does not depend on the rows around it, bit for bit.

A *feature set* is a list of named columns with the code that computes them, under a version. A
model's manifest names the set that it was trained on, by its version and a hash of its names. Sets
lie side by side, in `SETS`, each for as long as a supported model needs it; the names of this
package are those of `CURRENT`, which is trained on where nobody asks for another.

Times are estimates in microseconds from the device's data sheet: a roofline with the waves of
tiles over multiprocessors, tiles that reach over the edge, the reach of L2 and the latency of
loads that nothing hides. They need not be right, only to move as the truth does; the largest
of them is the *base* time, from which a model may learn the difference.

Sources: waves, tile and wave quantisation: NVIDIA, "Matrix Multiplication Background User's
Guide"; the roofline: Williams, Waterman and Patterson, CACM 52(4), 2009; the order of tiles
(GROUP_M): Triton's matrix-multiplication tutorial; copy widths by alignment: kernels compiled
for sm_90, see `resources.MIN_COPY`.
"""

from __future__ import annotations

from diode_engine.features.feature_set import DTYPES, FeatureSet, SpaceFeatures, supported
from diode_engine.features.version_2 import VERSION_2
from diode_engine.features.version_3 import VERSION_3

__all__ = [
    "BASE", "CURRENT", "DTYPES", "NAMES", "NAMES_HASH", "OF_PROBLEM", "SETS", "VERSION",
    "FeatureSet", "SpaceFeatures", "matrix", "space", "supported",
]  # fmt: skip

SETS = {each.version: each for each in (VERSION_2, VERSION_3)}
CURRENT = VERSION_2
VERSION = CURRENT.version
NAMES = CURRENT.names
NAMES_HASH = CURRENT.names_hash
BASE = CURRENT.base
OF_PROBLEM = CURRENT.of_problem
matrix = CURRENT.matrix
space = CURRENT.space
