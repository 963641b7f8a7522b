"""Where Diode takes the library's kernels, the program is that of plain torch.compile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch.nn import functional

import diode_engine
from diode_engine.inductor.without_gpu import lower
from tests.inductor_nogpu.conftest import (
    LIBRARY,
    SPEECHLESS,
    TRITON,
    Build,
    FixedPredictor,
    build_of,
    install,
    install_times,
)
from tests.inductor_nogpu.conftest import empty as any_empty

MAX_AUTOTUNE = "max-autotune-no-cudagraphs"


empty = partial(any_empty, dtype=torch.float32)
of = partial(build_of, dtype=torch.float32)


def kan() -> tuple[Any, Sequence[torch.Tensor]]:
    """Two layers of a Kolmogorov-Arnold network with 10 inputs: silu(x) @ base + bases(x) @ w, by
    8 radial bases of each input."""
    layers = [
        (empty(wide, inputs), empty(inputs, 8), empty(wide, inputs * 8))
        for inputs, wide in ((10, 512), (512, 10))
    ]

    def network(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for base, grid, weight in (weights[:3], weights[3:]):
            bases = torch.exp(-((x.unsqueeze(-1) - grid) ** 2)).flatten(1)
            x = functional.linear(functional.silu(x), base) + functional.linear(bases, weight)
        return x

    return network, [empty(2000, 10), *layers[0], *layers[1]]


SAME, OTHER = ((2000, 512), (512, 256)) * 2, ((2000, 512), (512, 256), (2000, 80), (80, 256))
PROGRAMS: dict[str, Build] = {
    "a KAN": kan,
    "a sum of products": of(lambda a, b, c, d: a @ b + c @ d, *SAME),
    "a sum of products of other sizes": of(lambda a, b, c, d: a @ b + c @ d, *OTHER),
    "a sum with an activation": of(lambda a, b, c, d: (a @ b + c @ d).relu(), *SAME),
    "a product of a product": of(lambda a, b, c: a @ b @ c, (2000, 512), (512, 2049), (2049, 512)),
    "a layer before a layer": of(
        lambda x, w, bias, v: torch.addmm(bias, x, w) @ v,
        (2000, 512), (512, 2049), (2049,), (2049, 512),
    ),
    "products side by side": of(lambda a, b, c, d: torch.cat([a @ b, c @ d]), *SAME),
    "a batch": of(lambda a, b, c: a @ b @ c, (4, 99, 512), (4, 512, 2049), (4, 2049, 64)),
    "a scaled addend": of(
        lambda a, b, c: torch.addmm(c, a, b, beta=0.5), (2000, 512), (512, 256), (2000, 256)
    ),
    "a layer with one output": of(
        lambda x, w, bias: torch.addmm(bias, x, w), (2000, 512), (512, 1), (1,)
    ),
}  # fmt: skip


def program(build: Build, mode: str, **options: Any) -> list[str]:
    """The lines of the generated program that allocate tensors and call kernels, in its order."""
    (source,) = lower(build, mode=mode, options=options).sources
    lines = [line.strip() for line in source[source.index("def call(") :].splitlines()]
    return [x for x in lines if "extern_kernels." in x or ".run(" in x or "empty_strided" in x]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_is_that_of_plain_compile(name):
    plain = program(PROGRAMS[name], "default")
    install_times(LIBRARY)
    assert program(PROGRAMS[name], MAX_AUTOTUNE) == plain
    assert program(PROGRAMS[name], "default", fast_autotune=True) == plain
    assert diode_engine.get_stats()["fallbacks"] == 0


def test_a_kernel_for_the_sum_is_taken_where_it_is_faster():
    predictor = install_times(TRITON)
    (kernel,) = program(PROGRAMS["a sum of products"], MAX_AUTOTUNE)[1:]
    assert "mm_plus_mm" in kernel or "triton_tem" in kernel
    assert {str(problem.op) for problem, _ in predictor.asked} == {"mm_plus_mm"}


def test_the_program_is_plains_where_the_model_does_not_know_what_is_taken():
    of_two_ops = FixedPredictor(aten=LIBRARY)
    of_two_ops.ops = frozenset({"mm", "addmm"})
    for predictor, sizes in ((of_two_ops, " of other sizes"), (SPEECHLESS, "")):
        build = PROGRAMS["a sum of products" + sizes]
        diode_engine.uninstall_diode_choices()
        plain = program(build, "default")
        install(predictor)
        assert program(build, MAX_AUTOTUNE) == plain


def test_a_program_that_changes_the_search_gets_inductors_sum():
    install_times(LIBRARY)
    options = {"test_configs.max_mm_configs": 4}
    lowered = lower(
        PROGRAMS["a sum of products"], mode=MAX_AUTOTUNE, options=options, benchmark=lambda _: 1.0
    )
    assert lowered.seen[0].candidates[0].template == "aten::_mm_plus_mm"


@pytest.mark.parametrize("options", [{"top_k_configs": 3}, {"backends": "ATEN,TRITON,CUTLASS"}])
def test_a_layout_is_fixed_where_other_kernels_may_be_taken(options):
    install_times(LIBRARY, top_k_configs=options.get("top_k_configs", 1))
    backends = options.get("backends", config.max_autotune_gemm_backends)
    (source,) = lower(
        PROGRAMS["a product of a product"],
        options={"max_autotune_gemm_backends": backends},
        benchmark=lambda c: 1.0 if c.is_extern else 2.0,
    ).sources
    assert "empty_strided_cuda((2000, 2049), (2049, 1)" in source
