"""The options of the present compile."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config

from diode_engine.choosing import frozen_file
from diode_engine.choosing.frozen import FREEZING, FrozenChoices
from diode_engine.inductor.torch_internals.config_entries import find_config_keys
from diode_engine.inductor.torch_internals.versions import part

# How the names of Inductor's options begin on which it depends which kernels it offers.
_OFFERING = (
    "max_autotune_gemm_backends", "max_autotune_prune_choices", "triton.enable_",
    "triton.decompose_k", "triton.num_decompose_k", "triton.codegen_upcast", "triton.native_matmul",
    "triton.autotune_cublas",
)  # fmt: skip


@dataclass(frozen=True)
class CompileOptions:
    """Diode's and Inductor's options, as they are set in torch._inductor.config.
    docs/integration.md describes Diode's. A number beyond an option's bounds counts as the nearest
    allowed one."""

    fast: bool  # chooses_in_any_mode
    top_k: int  # diode_top_k; 0: as many as the choices were installed with
    confidence: float  # diode_confidence_threshold
    fallback: bool  # diode_fallback_to_autotune
    cache: bool  # diode_cache_predictions
    fusion: bool  # diode_fusion_aware, and that Inductor fuses at all
    deterministic: bool  # takes_one_kernel
    invariant: bool  # is_batch_invariant
    other_backends: bool  # whether others may add kernels to those that Diode chooses
    offering: str  # Inductor's options that may decide which kernels it offers
    frozen: FrozenChoices | None  # diode_frozen_choices

    @classmethod
    def current(cls) -> CompileOptions:
        """The options as they are set now. Raises FrozenChoicesError where the frozen choices
        cannot be read."""
        options: Any = config
        return cls(
            chooses_in_any_mode(),
            max(0, int(options.diode_top_k)),
            min(1.0, max(0.0, float(options.diode_confidence_threshold))),
            bool(options.diode_fallback_to_autotune),
            bool(options.diode_cache_predictions),
            fuses_epilogues(),
            takes_one_kernel(),
            is_batch_invariant(),
            other_backends(),
            offering_options(),
            frozen_choices(),
        )


def chooses_in_any_mode() -> bool:
    """Return whether Diode chooses without max-autotune: by fast_autotune, and where it alone keeps
    results from depending on the batch, by diode_batch_invariant."""
    options: Any = config
    return bool(options.fast_autotune or options.diode_batch_invariant)


def fuses_epilogues() -> bool:
    """Return whether choices count what fusing an epilogue saves."""
    options: Any = config
    return bool(options.diode_fusion_aware and options.epilogue_fusion)


def has_frozen_choices() -> bool:
    """Return whether the choices of the present compile are frozen."""
    return bool(config.diode_frozen_choices) and not is_freezing()  # type: ignore[attr-defined]


def frozen_choices() -> FrozenChoices | None:
    """Return the frozen choices of the present compile, None where there are none. The file is read
    once, and again after it has changed. Raises FrozenChoicesError."""
    if not has_frozen_choices():
        return None
    path = Path(config.diode_frozen_choices)  # type: ignore[attr-defined]
    try:
        found = path.stat()
    except OSError:
        return frozen_file.read(path)
    return _read_frozen(path.absolute(), found.st_mtime_ns, found.st_size)


@lru_cache(8)
def _read_frozen(path: Path, *_: int) -> FrozenChoices:
    return frozen_file.read(path)


def is_freezing() -> bool:
    """Return whether `diode-engine freeze` watches this process."""
    return bool(os.environ.get(FREEZING))


def takes_one_kernel() -> bool:
    """Return whether each product gets one kernel without a benchmark, whatever other options
    say."""
    return is_freezing() or has_frozen_choices() or is_deterministic()


def is_deterministic() -> bool:
    """Return whether the program asks for the same results in every run, by Inductor's option,
    torch.use_deterministic_algorithms or `is_batch_invariant`. Nothing may be benchmarked then."""
    return bool(
        config.deterministic or torch.are_deterministic_algorithms_enabled() or is_batch_invariant()
    )


def is_batch_invariant() -> bool:
    """Return whether the program asks for results of a row that do not depend on the batch, by
    diode_batch_invariant or by Inductor's batch_invariant, which newer torches have."""
    options: Any = config
    return bool(options.diode_batch_invariant or part(config, "batch_invariant"))


def offering_options() -> str:
    """Return the values of Inductor's options that may decide which kernels it offers."""
    return repr([getattr(config, name) for name in offering_keys()])


@cache
def offering_keys() -> tuple[str, ...]:
    """Return the names of these options."""
    return find_config_keys(config, *_OFFERING)


@cache
def splitting_keys() -> tuple[str, ...]:
    """Return the names of Inductor's options for the number of splits of K that it offers."""
    return find_config_keys(config, "triton.num_decompose_k_splits")


def other_backends() -> bool:
    """Whether backends that Diode does not choose among may add kernels now."""
    return bool(config.external_matmul or _other_backends(config.max_autotune_gemm_backends))


@cache
def _other_backends(backends: str) -> bool:
    names = {name.strip() for name in backends.upper().split(",")}
    return not names <= {"ATEN", "TRITON", "CPP", "DIODE", ""}
