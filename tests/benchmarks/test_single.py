"""Sets beside the zoo: the names of their models, and the operands of products; no GPU is asked."""

from __future__ import annotations

import argparse
from pathlib import Path

from diode_engine.core.problem import Problem
from diode_engine.problems.sources import read_shapeset
from diode_engine.store.datasets.reading import read_dataset

ROOT = Path(__file__).parents[2]
FRESH = ROOT / "benchmarks" / "fresh_products"


def test_no_dataset_has_the_sizes_that_were_drawn():
    def sizes(problems):
        return {(p.B, p.M, p.N, p.K) for p in problems}

    files = sorted((ROOT / "datasets").rglob("*.zst"))
    known = sizes(problem for file in files for problem in read_dataset(file).problems)
    assert len(known) > 5000
    fresh = set()
    for name in ("float32", "others"):
        fresh |= sizes(read_shapeset(FRESH / f"{name}.json").problems(0))
    assert len(fresh) == 100
    assert fresh & known == set()


def test_each_model_of_a_set_has_a_name_of_its_own():
    import zoo

    products = zoo._models(argparse.Namespace(set=FRESH, models=""))
    programs = zoo._models(argparse.Namespace(set=f"{FRESH.parent}/fresh_programs.json", models=""))
    names = {model.name for model in (*zoo.ZOO.values(), *products, *programs)}
    assert len(names) == len(zoo.ZOO) + len(products) + len(programs)
    assert (len(products), len(programs)) == (114, 64)
    assert {model.group for model in products} == {
        "product, TF32", "product, float32", "product, half aligned", "product, half odd"
    }  # fmt: skip


def test_sets_of_operands_are_larger_than_the_cache(monkeypatch):
    import zoo_measuring
    from zoo_models import single

    monkeypatch.setattr(zoo_measuring, "DEVICE", "cpu")
    monkeypatch.setattr(zoo_measuring, "COLD_BYTES", 1e6)
    (model,) = (m for m in single.products(FRESH) if "baddbmm 5×41×87×57" in m.name)
    bench = zoo_measuring.make_bench(model)
    (size,) = {sum(x.nbytes for x in one) for one in bench.sets}
    assert 1e6 <= size * len(bench.sets) < 1e6 + 2 * size
    (layouts,) = {tuple((tuple(x.shape), x.stride()) for x in one) for one in bench.sets}
    problem = Problem.make("baddbmm", 41, 87, 57, "float32", B=5, b_layout="col", bias="matrix")
    assert [*layouts] == [(size, stride) for size, stride, _ in problem.input_shapes().values()]
    assert not bench.sets[0][0].equal(bench.sets[1][0])
    assert bench.reference is not None
    assert bench.reference[0].allclose(bench.net(*bench.sets[0]).double(), atol=1e-3)
