"""The ways in which the zoo compiles a model."""

from __future__ import annotations

from typing import Any

import torch
from measuring import MAX_AUTOTUNE, Way, diode, stock

# The same in all ways: Inductor chooses these itself, by timings that it takes anew in each
# compile, and they differ by more than what is measured here.
_SAME: dict[str, Any] = {"triton.autotune_pointwise": False, "max_autotune_conv_backends": "ATEN"}
_TUNED = {**MAX_AUTOTUNE, **_SAME}

WAYS = {
    "plain": Way(_SAME, stock),
    "import": Way(_TUNED, diode(top_k_configs=1)),  # as `import diode_engine` installs it
    "fast": Way({"fast_autotune": True, **_SAME}, diode(top_k_configs=1)),
    "install": Way(_TUNED, diode()),
    "threshold": Way({**_TUNED, "diode_confidence_threshold": 0.9}, diode(top_k_configs=1)),
    # it tunes pointwise kernels as well, which takes as long whoever chooses the GEMMs
    "mode": Way(
        torch._inductor.list_mode_options("max-autotune-no-cudagraphs"), diode(top_k_configs=1)
    ),
    "DEFAULT": Way(_TUNED, stock),
    "again": Way(_SAME, stock),  # plain compiled twice: always measured with the others
}
DIODE = ("import", "fast", "install", "threshold", "mode")
