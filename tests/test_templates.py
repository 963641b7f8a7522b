"""The table of templates, and what a new family of them touches. The first part of this module is
what would be the family's module under core/templates; the fixture `family` is its line in the
table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from diode_app.data.problem_columns import short
from diode_engine import features
from diode_engine.choosing.choice import Why
from diode_engine.choosing.policy import Policy, plain_library_call
from diode_engine.collect.planning.candidate_plan import CandidatePlan, plausible
from diode_engine.collect.planning.plan import CandidateSelection
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import CandidateTable, encode
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits, many_loads, shared_bytes
from diode_engine.core.templates import TEMPLATES, template_of, templates_for
from diode_engine.core.templates.template import Configs, Space, Template
from diode_engine.inductor.lowering.kernel_class import SharedKeys, class_of, grid
from diode_engine.models.artifact import Artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.explain import explain, rival
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import TimingModel
from diode_engine.problems.spaces import SpaceSize, default_space, exhaustive_space, space_size
from diode_engine.store import Store, schema
from tests.samples import shared_class, table_of

# ---- the module of a family: a persistent kernel that splits K, and a library's with a name of
# its own


def _configs(m: int, n: int, k: int, torch: Any = None) -> Configs:
    return tuple((tile, tile, 32, 2, 4, split) for tile in (64, 128) for split in (1, 2))


MADE_UP = Template(
    name="made_up::split",
    label="split",
    ops=("mm",),
    parameters={
        "TILE_M": "block_m", "TILE_N": "block_n", "TILE_K": "block_k", "STAGES": "stages",
        "WARPS": "warps", "PARTS": "k_split",
    },
    required=("TILE_M", "TILE_N", "TILE_K"),
    tiled=True,
    persistent=True,
    fuses_epilogue=True,
    constants=frozenset("K"),
    grid=lambda b, m, n, config, multiprocessors: (multiprocessors, b, config["PARTS"]),
    shared_bytes=lambda problem, columns, hardware: columns.k_split * 200_000,
    space=Space(
        default_configs=lambda m, n, k, torch: _configs(m, n, k)[:1], exhaustive_configs=_configs
    ),
)  # fmt: skip
LIBRARY = Template(
    name="made_up::library",
    ops=("mm",),
    extern=True,
    space=Space(
        default_configs=lambda m, n, k, torch: ((),), exhaustive_configs=lambda m, n, k: ((),)
    ),
)

PROBLEM = Problem.make("mm", 512, 640, 768, "bfloat16")
WHOLE, HALVES, WIDE, WIDE_HALVES = (
    Candidate("made_up::split", tuple(zip(MADE_UP.parameters, config, strict=True)))
    for config in _configs(512, 640, 768)
)
CALL, CUBLAS = Candidate("made_up::library"), Candidate("aten::mm")


@pytest.fixture(autouse=True)
def family(monkeypatch):
    for template in (MADE_UP, LIBRARY):  # the line of the table
        monkeypatch.setitem(TEMPLATES, template.name, template)


# ---- what works with nothing else changed


def test_its_candidates_are_encoded():
    columns = encode((WIDE_HALVES, CALL, CUBLAS, Candidate.make("made_up::split", TILE_M=64)))
    assert columns.known.tolist() == [True, True, True, False]
    assert columns.tiled.tolist() == columns.persistent.tolist() == [True, False, False, False]
    assert columns.extern.tolist() == [False, True, True, False]
    assert [float(column[0]) for column in (columns.block_m, columns.warps, columns.k_split)] == [
        128, 4, 2,
    ]  # fmt: skip
    assert str(WIDE) == "made_up::split 128×128×32 s2 w4"
    assert short(WIDE) == "split 128×128×32 s2 w4"
    assert CALL.is_extern
    assert not WIDE.is_extern


def test_they_have_features():
    pair = (WIDE_HALVES, CALL)
    x = features.matrix((PROBLEM,), pair, np.zeros(2, np.intp), np.arange(2), H200)
    of = dict(zip(features.NAMES, x.T.tolist(), strict=True))
    assert np.isfinite(x).all()
    assert of["triton"] == [1, 0]
    assert of["aten"] == [0, 1]
    assert of["triton_tma"] == [0, 0]
    assert of["log2_k_split"] == [1, 0]
    assert of["blocks_per_multiprocessor"][0] == 1  # it is persistent


def test_they_need_what_the_template_says():
    space = CandidateTable.make((WHOLE, HALVES, CALL, CUBLAS))
    assert shared_bytes(PROBLEM, space, H200).tolist() == [200_000, 400_000, 0, 0]
    assert fits(PROBLEM, space, H200).tolist() == [True, False, True, True]
    assert not many_loads((PROBLEM,), space, np.zeros(4, np.intp), np.arange(4)).any()


def test_they_are_in_the_spaces():
    default, exhaustive = default_space(PROBLEM), exhaustive_space(PROBLEM)
    assert [c for c in default if c.template.startswith("made_up")] == [WHOLE, CALL]
    assert {WHOLE, HALVES, WIDE, WIDE_HALVES, CALL} < set(exhaustive)
    assert space_size(PROBLEM) == SpaceSize(2, len(exhaustive) - 2)
    assert space_size(PROBLEM, default=True).libraries == 2
    assert not any(t in templates_for("bmm") for t in (MADE_UP, LIBRARY))


def test_they_are_planned():
    offered = [c for c in exhaustive_space(PROBLEM) if c.template.startswith("made_up")]
    plan = CandidatePlan(
        PROBLEM, offered, default_space(PROBLEM), H200, selection=CandidateSelection(budget=4)
    )
    assert set(plan.next_batch(2)) == {WHOLE, CALL}  # of the DEFAULT space
    assert plan.next_batch(9) == [WIDE]  # of the others the one that fits the device
    assert plausible(PROBLEM, WIDE)
    tall = Candidate.make("made_up::split", TILE_M=256, TILE_N=256, TILE_K=32, WARPS=2)
    assert not plausible(PROBLEM, tall)


def test_a_binary_is_shared_by_problems_of_the_same_constants():
    shared = shared_class(PROBLEM, WIDE)
    assert shared.fixed == {"B", "K"}
    assert shared == class_of(Problem.make("mm", 1024, 640, 768, "bfloat16"), WIDE)
    assert shared != class_of(Problem.make("mm", 512, 640, 1536, "bfloat16"), WIDE)
    assert SharedKeys(PROBLEM, [WIDE])(WIDE) == shared.key
    other = class_of(PROBLEM, WIDE_HALVES)
    assert other is not None
    assert grid(other, PROBLEM, 132) == (132, 1, 2)
    assert class_of(PROBLEM, CALL) is None


def test_they_are_summarised(tmp_path):
    with Store.open(tmp_path / "diode.db") as store:
        store.import_table(
            table_of((PROBLEM,), (WIDE, CALL, CUBLAS), [3.0, 5.0, 7.0]), key="made up", spec={}
        )
        with store.reads() as connection:
            [row] = connection.execute(sa.select(schema.summaries))
    assert (row.candidates, row.best_us, row.aten_us) == (3, 3.0, 5.0)


class _Rule(TimingModel):
    """A model by which a wide tile is four times as fast."""

    family = "rule"
    suffix = ".rule"

    def predict(self, x: Any) -> Any:
        wide = x[:, features.NAMES.index("log2_block_m")] > 6
        tiled = x[:, features.NAMES.index("aten")] == 0
        return np.where(tiled & wide, 1.0, 1.0 + np.log(4)).astype(np.float32)


@pytest.fixture
def predictor():
    table = table_of((PROBLEM,), (WIDE, WHOLE, CALL), [1.0, 2.0, 3.0])
    manifest = Manifest(
        name="rule", family="rule", hardware=H200, coverage=Coverage.make(table), data=Data()
    )
    return Predictor(Artifact(manifest, (_Rule(),)))  # type: ignore[arg-type]


def test_they_are_predicted_explained_and_taken(predictor):
    candidates = (CALL, WHOLE, WIDE, CUBLAS)
    ranking = predictor.predict(PROBLEM, candidates)
    assert ranking.order.tolist() == [2, 0, 1]  # no model was trained on the last one
    found = explain(predictor, PROBLEM, WIDE, CALL)
    assert found.baseline_us / found.candidate_us == pytest.approx(4)
    assert rival([candidates[i] for i in ranking.order]) == 1
    assert plain_library_call(candidates).tolist() == [True, False, False, True]
    assert Policy().compare(ranking).choose() == ([2], Why.FASTEST)


def test_a_table_of_columns_names_a_template_s_own_parameters(monkeypatch):
    tiles = np.array([[64], [128], [32], [3], [4], [8]])
    renamed = Template(
        name="made_up::renamed",
        ops=("mm",),
        parameters={
            "M": "block_m", "N": "block_n", "K": "block_k", "S": "stages", "W": "warps",
            "G": "group_m",
        },
        required=("M", "N", "K"),
        tiled=True,
    )  # fmt: skip
    monkeypatch.setitem(TEMPLATES, renamed.name, renamed)
    [candidate] = CandidateTable.tiled(renamed.name, tiles)
    assert candidate == Candidate.make(renamed.name, M=64, N=128, K=32, S=3, W=4, G=8)
    assert encode([candidate]).block_n.tolist() == [128]


# ---- templates that are not in the table


def test_a_template_that_is_not_in_the_table_is_told_by_inductor_s_rules_of_naming():
    call, tma = template_of("aten::new"), template_of("triton::new_persistent_tma")
    assert call.extern
    assert not call.fuses_epilogue
    assert tma.tma
    assert tma.option  # so a choice of it is not remembered
    assert tma.fuses_epilogue
    assert not tma.extern
    assert not template_of("decompose_new").extern
    assert not encode([Candidate.make("triton::new", BLOCK_M=16)]).known.any()


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=lambda template: template.name)
def test_a_record_is_whole(template):
    assert template.name
    assert set(template.required) <= set(template.parameters)
    assert template.tiled is (template.names.get("block_m") is not None)
    if template.constants is not None:  # its binaries are launched
        assert not template.extern
        assert template.grid is not None
        assert {"a", "b", "out"} <= set(template.arguments.values())
    if template.recorded_with_bias_vector:
        assert template_of(template.recorded_with_bias_vector).bias_vector
