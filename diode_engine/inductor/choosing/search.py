"""Whether the program has narrowed, replaced or is watching Inductor's search among choices.

Diode chooses before that search. A filter would then have nothing left, a listener would hear
nothing, and a function that replaces one of Inductor's would not be called. Preprocessing functions
of the program (add_preprocessing_fn) are still called, with Diode's choice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch._inductor import config, select_algorithm
from torch._inductor.kernel import bmm, mm
from torch._inductor.select_algorithm import AlgorithmSelectorCache

from diode_engine.inductor.choosing.compile_options import has_frozen_choices
from diode_engine.inductor.listening import feedback
from diode_engine.inductor.lowering.candidates import tf32_allowed, tf32_in_convolutions_only
from diode_engine.inductor.torch_internals.dispatcher import calls_cublaslt
from diode_engine.inductor.torch_internals.versions import part

# Of torch._inductor.config.test_configs: each narrows, forces or distorts what is chosen, if it is
# set.
_NARROWING = (
    "autotune_choice_name_regex",
    "autotune_choice_desc_regex",
    "max_mm_configs",
    "force_extern_kernel_in_multi_template",
    "distort_benchmarking_result",
)
# Functions of the search: they time candidates, ask for that, or say which kinds of kernels are
# among them.
_FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (AlgorithmSelectorCache, "lookup"),
    (AlgorithmSelectorCache, "do_autotuning"),
    (AlgorithmSelectorCache, "autotune"),
    (AlgorithmSelectorCache, "make_benchmark_fn"),
    (AlgorithmSelectorCache, "benchmark_in_current_process"),
    (AlgorithmSelectorCache, "benchmark_choices"),
    (AlgorithmSelectorCache, "benchmark_choice"),
    (mm, "autotune_select_algorithm"),
    (bmm, "autotune_select_algorithm"),
    (mm, "use_decompose_k_choice"),
)


def find_alteration() -> str | None:
    """What differs from Inductor's own search, in words; None where nothing does, and where choices
    are frozen, since nothing is searched then."""
    if has_frozen_choices():
        return None
    if part(config, "multi_kernel_hints"):
        return "torch._inductor.config.multi_kernel_hints asks for kernels for several sizes"
    if part(config, "distributed_max_autotune_gemm"):
        return "torch._inductor.config.distributed_max_autotune_gemm spreads the search over ranks"
    if config.run_autoheuristic("mm"):
        return "Inductor's AutoHeuristic is used or trained for products"
    narrowing = config.test_configs  # each look-up in a config takes a microsecond
    for name in _NARROWING:
        if part(narrowing, name) not in (None, False, ""):
            return f"torch._inductor.config.test_configs.{name} is set"
    if part(select_algorithm, "VERIFY"):
        return "torch._inductor.select_algorithm.VERIFY has every candidate's result checked"
    savers = select_algorithm.get_algorithm_selector_cache().feedback_saver_fns
    if any(saver is not feedback.save for saver in savers):
        return "a feedback saver of Inductor's waits for the candidates' timings"
    for owner, name in _FUNCTIONS:
        function = part(owner, name)
        if function is not None and not _is_inductors(function):
            return f"{owner.__name__}.{name} of Inductor's search was replaced"
    return None


def read_settings() -> dict[str, str]:
    """Return what choices depend on besides the options in Inductor's config, by name."""
    in_convolutions = "in convolutions only" if tf32_in_convolutions_only() else "off"
    return {
        # It decides which convolutions become products, too.
        "tf32": "on" if tf32_allowed() else in_convolutions,
        # It decides which activations become part of a product.
        "cublaslt": str(calls_cublaslt()),
        # Kernels that another search has chosen are not Diode's.
        "search": find_alteration() or "Inductor's",
    }


@lru_cache(maxsize=64)  # each graph asks about the same ones
def _is_inductors(function: Any) -> bool:
    """Whether a function is defined in torch._inductor."""
    if hasattr(function, "cache_info"):  # behind functools.cache
        function = getattr(function, "__wrapped__", None)
    names = getattr(function, "__globals__", {})
    return str(names.get("__name__", "")).startswith("torch._inductor.")
