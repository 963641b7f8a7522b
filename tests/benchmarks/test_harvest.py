"""What the harvest makes of what was traced; nothing is traced here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.problems.harvested import HarvestFamily, parse_harvest


def asked(op: str, shapes: list[list[int]], strides: list[list[int]], dtype: str) -> dict[str, Any]:
    return {
        "op": op, "shapes": shapes, "strides": strides, "dtypes": [dtype] * len(shapes),
        "out_dtype": dtype,
    }  # fmt: skip


def program(name: str, family: str, batches: tuple[int, ...], *, single: bool = False) -> Any:
    from harvest_models.programs import Program

    return Program(
        family, name, "timm", "forward", lambda b: (nn.Linear(8, 8), (torch.empty(b, 8),)),
        single=single, batches=batches,
    )  # fmt: skip


def test_the_families_that_are_held_out_are_those_of_the_draw() -> None:
    from harvest_models import families

    kinds = families.kinds()
    assert set(families.draw(kinds)) == families.HELD_OUT
    for kind in set(kinds.values()):
        of_kind = [name for name in kinds if kinds[name] == kind]
        held = families.HELD_OUT & set(of_kind)
        assert len(held) / len(of_kind) >= 0.25
        assert held - families.BEFORE  # not by old names alone


def test_every_program_has_a_name_of_its_own_and_a_kind() -> None:
    from harvest_models import families
    from harvest_models.programs import all_programs

    programs = all_programs()
    assert len({p.name for p in programs}) == len(programs) > 1000
    assert {p.family for p in programs} == set(families.kinds())
    assert [p.name for p in all_programs()] == [p.name for p in programs]


def test_sizes_and_strides_that_have_the_traced_batch_grow_with_it() -> None:
    from harvest_writing import problem, scaled

    traced = asked("mm", [[256, 23 * 7], [23 * 7, 48]], [[1, 256], [48, 1]], "bfloat16")
    found = problem(scaled(traced, 23, 4))
    assert found == Problem.make("mm", 256, 48, 28, "bfloat16", a_layout="col")
    padded = asked("bmm", [[23, 5, 8], [23, 8, 6]], [[5 * 23, 23, 1], [48, 6, 1]], "float32")
    found = problem(scaled(padded, 23, 6))
    assert found == Problem.make("bmm", 5, 6, 8, "float32", B=6, a_align=2)  # a stride of 6
    assert problem(scaled(padded, 1, 1)) == problem(padded)


def test_a_program_in_half_precision_keeps_its_products_of_float32() -> None:
    from harvest_writing import problem, retyped

    half = problem(asked("mm", [[16, 8], [8, 32]], [[8, 1], [32, 1]], "bfloat16"))
    full = problem(asked("mm", [[16, 8], [8, 32]], [[8, 1], [32, 1]], "float32"))
    assert half is not None
    assert full is not None
    assert retyped(half, half=DType.FLOAT16, tf32=False) == Problem.make("mm", 16, 32, 8, "float16")
    assert retyped(full, half=DType.FLOAT16, tf32=False) == full
    assert retyped(full, half=DType.BFLOAT16, tf32=True) == Problem.make(
        "mm", 16, 32, 8, "float32", allow_tf32=True
    )


def test_what_is_written_says_where_each_product_is_from(tmp_path: Path) -> None:
    import harvest_writing

    shared = asked("mm", [[16, 64], [64, 32]], [[64, 1], [32, 1]], "float32")
    own = asked("mm", [[16, 64], [64, 48]], [[64, 1], [48, 1]], "float32")
    programs = {
        p.name: p
        for p in (
            program("vit_tiny_patch16_224", "vit", (1,), single=True),
            program("cait_s24_224", "cait", (1,), single=True),
        )
    }
    rows = [
        {"program": name, "batch": 1, "asked": several}
        for name, several in zip(programs, ([shared], [shared, own]), strict=True)
    ]
    file = tmp_path / "harvest.json.zst"
    harvest_writing.write(rows, programs, file, "a test")
    found = parse_harvest(file.read_bytes(), file.name)
    traced = {
        (p.N, p.allow_tf32): where
        for p, where in found.found.items()
        if any(model.startswith("timm/") for model in where.models)
    }
    # both programs may have drawn the same type
    every = [where for (n, _), where in traced.items() if n == 32]
    assert sum(where.programs for where in every) == 2
    assert {f for where in every for f in where.families} == {"vit", "cait"}
    (alone,) = (where for (n, _), where in traced.items() if n == 48)
    assert alone.models == ("timm/cait_s24_224",)
    assert found.families["vit"] == HarvestFamily("image", held_out=True)
    assert found.families["cait"] == HarvestFamily("image", held_out=False)
    # the layers that were written out by hand are there as well, and held out
    by_hand = [w for w in found.found.values() if any(f.startswith("written-") for f in w.families)]
    assert len(by_hand) > 2000
    assert all(any(found.families[f].held_out for f in where.families) for where in by_hand)


def test_of_layers_that_repeat_one_of_each_kind_is_left() -> None:
    from harvest_models.programs import few_layers

    def block(size: int) -> nn.Module:
        return nn.Sequential(nn.Linear(8, size), nn.ReLU(), nn.Linear(size, 8))

    model = nn.Sequential(block(16), block(32), block(16), block(32), nn.ReLU(), block(24))
    left = few_layers(model)
    assert [type(part).__name__ for part in left] == ["Sequential"] * 2 + ["ReLU", "Sequential"]
    assert [len(part) for part in left if isinstance(part, nn.Sequential)] == [3, 3, 3]
    assert left(torch.zeros(2, 8)).shape == (2, 8)
