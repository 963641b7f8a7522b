"""FlexAttention's kernels for benchmarks/flex_attention.py, rendered by Inductor's own lowering."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from diode_engine.core.hardware import H200

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GRAPH_OF_2_11 = pytest.mark.skipif(
    torch.__version__ < (2, 11), reason="torch 2.10 calls the backward pass with other arguments"
)


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in set(sys.modules) - before:
        if name.startswith("flex_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("kind", "mask", "batch"),
    [("forward", "document", None), ("forward", "dense", None),
     pytest.param("backward", "window", None, marks=GRAPH_OF_2_11), ("decoding", "dense", 4)],
)  # fmt: skip
def test_inductor_renders_the_configs_of_each_kind(kind: str, mask: str, batch: int | None) -> None:
    import flex_kernels as fk
    from flex_problems import Family

    family = Family(kind, 64, "bfloat16", mask, 8, 2, batch)
    tiers = fk.configs(family)
    default = [config for config, tier in tiers.items() if tier == fk.DEFAULT_TIER]
    assert len(default) == 1
    assert len(tiers) > 20
    wanted = [*default, next(c for c, tier in tiers.items() if tier == fk.LIKELY_TIER)]
    with fk.choices_of(family, wanted) as choices:
        assert list(choices) == wanted
        sources = [Path(choice.bmreq.module_path).read_text() for choice in choices.values()]
    for config, source in zip(wanted, sources, strict=True):
        block = f"BLOCK_N{'1' if kind == 'backward' else ''} : tl.constexpr = "
        assert f"{block}{config[1 if len(config) > 3 else 0]}" in source
        assert "ks0" in source  # the length is a symbol


def test_a_process_of_its_own_compiles_them_and_keeps_them(tmp_path: Path) -> None:
    import flex_compilers as fc
    import flex_kernels as fk
    from flex_problems import Family

    family = Family("forward", 64, "bfloat16", "causal", 8, 2)
    default = next(iter(fk.configs(family)))
    job = fc.Job(family, (default, (64, 32, 1, 4)), 0)
    compilers = fc.Compilers(1, H200, tmp_path)
    try:
        ((done, found),) = compilers.compiled([job], time.monotonic() + 240)
    finally:
        compilers.close()
    assert done == job
    kernel = found[default]
    assert isinstance(kernel, fk.Kernel), kernel
    assert kernel.sizes == ("blocks", "batch")
    assert kernel.binary.cubin.startswith(b"\x7fELF")
    assert "arg_KV_NUM_BLKS" in dict(kernel.binary.arguments)
    here = fc.Compilers(0, H200, tmp_path)  # nothing is compiled again
    assert list(here.compiled([job], time.monotonic())) == [(job, found)]


def test_without_processes_they_are_compiled_here(tmp_path: Path) -> None:
    import flex_compilers as fc
    import flex_kernels as fk
    from flex_problems import Family

    family = Family("decoding", 64, "bfloat16", "dense", 4, 4, 2)
    default = next(iter(fk.configs(family)))
    compilers = fc.Compilers(0, H200, tmp_path)
    ((_, found),) = compilers.compiled([fc.Job(family, (default,), 0)], time.monotonic() + 60)
    assert isinstance(found[default], fk.Kernel), found
    late = fc.Job(family, ((16, 4, 8),), 0)
    assert not list(compilers.compiled([late], time.monotonic() - 1))
