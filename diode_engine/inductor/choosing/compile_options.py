"""The options of the present compile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from torch._inductor import config

from diode_engine.inductor.torch_internals.versions import part


@dataclass(frozen=True)
class CompileOptions:
    """Diode's and Inductor's options, as they are set in torch._inductor.config.
    docs/integration.md describes Diode's. A number beyond an option's bounds counts as the nearest
    allowed one."""

    fast: bool  # fast_autotune
    top_k: int  # diode_top_k; 0: as many as the choices were installed with
    confidence: float  # diode_confidence_threshold
    fallback: bool  # diode_fallback_to_autotune
    cache: bool  # diode_cache_predictions
    fusion: bool  # diode_fusion_aware, and that Inductor fuses at all
    deterministic: bool  # Inductor's own: nothing may be benchmarked
    other_backends: bool  # whether others may add kernels to those that Diode chooses

    @classmethod
    def current(cls) -> CompileOptions:
        """The options as they are set now."""
        options: Any = config
        return cls(
            bool(options.fast_autotune),
            max(0, int(options.diode_top_k)),
            min(1.0, max(0.0, float(options.diode_confidence_threshold))),
            bool(options.diode_fallback_to_autotune),
            bool(options.diode_cache_predictions),
            bool(options.diode_fusion_aware and options.epilogue_fusion),
            bool(options.deterministic),
            other_backends(),
        )


def is_batch_invariant() -> bool:
    """Return whether the program asks for results of a sample that do not depend on the batch, by
    Inductor's option of torch 2.15. Diode's choices depend on it, so Diode makes none."""
    return bool(part(config, "batch_invariant"))


def other_backends() -> bool:
    """Whether backends that Diode does not choose among may add kernels now."""
    return bool(config.external_matmul or _other_backends(config.max_autotune_gemm_backends))


@cache
def _other_backends(backends: str) -> bool:
    names = {name.strip() for name in backends.upper().split(",")}
    return not names <= {"ATEN", "TRITON", "CPP", "DIODE", ""}
