"""The ways in which the zoo compiles a model."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

import diode_engine

# The GEMM's part of mode="max-autotune": the mode also tunes pointwise kernels and reductions,
# which takes the same seconds whoever chooses the GEMMs.
MAX_AUTOTUNE = {"max_autotune_gemm": True}
# The same in all ways: Inductor chooses these itself, by timings that it takes anew in each
# compile, and they differ by more than what is measured here.
_SAME: dict[str, Any] = {"triton.autotune_pointwise": False, "max_autotune_conv_backends": "ATEN"}
_TUNED = {**MAX_AUTOTUNE, **_SAME}


@dataclass(frozen=True)
class Way:
    """A way to compile: Inductor's options, and what is installed during the compile."""

    options: dict[str, Any]
    installed: Callable[[], AbstractContextManager[Any]]


@contextlib.contextmanager
def stock() -> Iterator[None]:
    diode_engine.uninstall_diode_choices()
    yield


def diode(**options: Any) -> Callable[[], AbstractContextManager[Any]]:
    @contextlib.contextmanager
    def installed() -> Iterator[None]:
        with diode_engine.diode_choices(**options) as active:
            if not active:
                sys.exit(f"Diode is not active: {diode_engine.get_stats()['reason']}")
            yield

    return installed


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
