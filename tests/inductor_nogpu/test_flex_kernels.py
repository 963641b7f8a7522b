"""FlexAttention's kernels for benchmarks/flex_attention.py, rendered by Inductor's own lowering."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


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
    [("forward", "document", None), ("forward", "dense", None), ("backward", "window", None),
     ("decoding", "dense", 4)],
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
