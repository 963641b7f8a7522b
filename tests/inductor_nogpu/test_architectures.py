"""The sweep over architectures that the zoo does not have: what it counts, and one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PROGRAM = """
def call(self, args):
        buf0 = empty_strided_cuda((2, 3), (3, 1), torch.float16)
        buf1 = empty_strided_cuda((s0, 3), (3, 1), torch.float16)
        triton_poi_fused_clone_relu_0.run(arg0_1, buf0, 6, stream=stream0)
        triton_tem_fused_clone_mm_1.run(arg0_1, buf0, buf1, 6, 1, 1, stream=stream0)
        extern_kernels.mm(buf0, arg1_1, out=buf1)
        buf2 = torch.ops.aten.sort.stable(buf1)
"""


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_the_kernels_of_a_program_are_counted() -> None:
    from zoo_lowering import kernels

    counted = {"poi": 1, "tem": 1, "mm": 1, "clone": 1, "aten.sort": 1, "bytes": 12}
    assert kernels([PROGRAM]) == counted
    assert kernels([PROGRAM, PROGRAM]) == {name: 2 * count for name, count in counted.items()}


def row(way: str, **more: Any) -> dict[str, Any]:
    return {
        "way": way, "error": "", "warnings": [], "graphs": 1, "products": 2,
        "stats": {"fallbacks": 0}, "kernels": {"poi": 3, "mm": 2}, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, []),
        ({"kernels": {"poi": 2, "mm": 1, "tem": 1}}, []),
        ({"error": "no"}, ["import: no"]),
        ({"warnings": ["fire"]}, ["import: a new warning: fire"]),
        ({"products": 1}, ["import: 1 of 2 products not asked for"]),
        ({"stats": {"fallbacks": 0, "passed_int_mm": 1}}, ["import: passed_int_mm 1: []"]),
        ({"kernels": {"poi": 4, "mm": 2}}, ["import: 4 poi, stock has 3"]),
        ({"kernels": {"poi": 4}, "stats": {"fallbacks": 0, "padding_decided": 1}}, []),
    ],
)
def test_what_stock_does_not_do_is_told(more: dict[str, Any], said: list[str]) -> None:
    from zoo_report import differences

    rows = {"plain": row("plain"), "import": row("import", **more)}
    assert list(differences(rows)) == said


def test_an_architecture_is_lowered() -> None:
    pytest.importorskip("transformers")
    import zoo_lowering
    from architectures import models
    from zoo_report import differences

    (model,) = (each for each in models() if each.name == "transformers/electra")
    found: list[dict[str, Any]] = []
    zoo_lowering.lower(model, ("plain", "import"), found.append)
    rows = {row["way"]: row for row in found}
    assert list(differences(rows)) == []
    assert rows["plain"]["problems"]
    assert rows["import"]["products"] > 6
