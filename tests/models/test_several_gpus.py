"""A model that has a record of several GPUs counts for each of them."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from diode_engine import predict_choice, register_model, registry
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, KNOWN
from diode_engine.core.problem import Problem
from diode_engine.errors import NoSuchModelError, RegistryError
from diode_engine.models.manifest import GpuRecord
from diode_engine.registry import ModelStatus
from tests.models.conftest import ship_default, taken_on

pytestmark = pytest.mark.usefixtures("shipped")

H100 = KNOWN["NVIDIA H100 80GB HBM3"]
BOTH = (
    GpuRecord(H200, 300, 9000, {"efficiency": 0.98, "problems": 50}),
    GpuRecord(H100, 100, 2000, {"efficiency": 0.97, "problems": 20, "efficiency_p10": 0.93}),
)


@pytest.fixture
def shared(ship, shipped):
    """shared@3 of both GPUs is shipped in the folder of the H200 and is the default of both; own@1
    is shipped in the H100's."""
    ship("own", hardware=H100)
    ship("shared", 3, gpus=BOTH)
    ship_default(shipped, "shared@3")
    ship_default(shipped, f"{H200.slug}/shared@3", H100)
    return registry.resolve("shared@3")


@pytest.fixture
def mine(save, tmp_path):
    """Registers a model of the user's."""

    def _mine(**changes: object) -> registry.ModelVersion:
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        save(folder, **{"name": "mine", **changes})
        return registry.register(folder)

    return _mine


def test_it_is_the_default_of_each_of_its_gpus(shared, caplog):
    for hardware in (H200, H100):
        match = registry.best_for(hardware)
        assert (match.model, match.likeness) == (shared, 1.0)
        assert match.default_of is not None
        with caplog.at_level(logging.INFO, logger="diode_engine.registry"):
            predictor = registry.load_predictor(hardware)
        assert predictor.hardware == hardware  # features are made with its facts
    assert "There is no model for" not in caplog.text
    # A GPU that is like the H100 borrows what the H100 takes.
    match = registry.best_for(KNOWN["NVIDIA H100"])
    assert (match.model, match.likeness) == (shared, H100.likeness(KNOWN["NVIDIA H100"]))


def test_without_a_default_the_newest_of_all_folders_is_taken(ship, shipped):
    ship("own", hardware=H100, created="2026-01-01")
    ship("shared", gpus=BOTH, created="2026-02-02")
    ship("own", 2, hardware=H100, created="2026-01-03")
    assert taken_on(H100) in ("shared@1", "own@2")  # `created` is when it was saved
    ship_default(shipped, "own@1", H100)
    assert taken_on(H100) == "own@1"
    assert taken_on(H200) == "shared@1"


def test_each_gpu_has_a_default_of_its_own(shared, mine):
    both, tuned = mine(gpus=BOTH), mine(hardware=H100, name="tuned")
    assert taken_on(H100) == "shared@3"  # nothing changes until one is promoted
    registry.set_default(both, H100.slug)
    assert (taken_on(H200), taken_on(H100)) == ("shared@3", "mine@1")
    registry.set_default(tuned)
    assert (taken_on(H200), taken_on(H100)) == ("shared@3", "tuned@1")
    assert [e.model for e in registry.history(H100.slug)] == ["nvidia-h200/mine@1", "tuned@1"]
    assert registry.rollback(H100.slug) == both
    assert registry.status_of(tuned) is ModelStatus.RETIRED
    assert registry.rollback(H100.slug) is None
    assert registry.status_of(both, H100.slug) is ModelStatus.RETIRED
    assert registry.status_of(both) is ModelStatus.DRAFT  # as far as the H200 is concerned
    assert taken_on(H100) == "shared@3"
    with pytest.raises(NoSuchModelError):
        registry.rollback(H200.slug)


def test_a_default_must_have_a_record_of_the_gpu(mine):
    with pytest.raises(RegistryError, match="mine@1 has no record of nvidia-h100-80gb-hbm3"):
        registry.set_default(mine(), H100.slug)


def test_what_was_refused_on_one_gpu_is_taken_on_the_other(ship, mine):
    ship("own", hardware=H100)
    both = mine(gpus=BOTH)
    registry.set_verdict(both, ModelStatus.REJECTED, {"model": "mine@1"}, H100.slug)
    registry.tag(both, ["night"])  # of the model, whatever the GPU
    here, there = registry.facts_of(both), registry.facts_of(both, H100.slug)
    assert here.tags == there.tags == ("night",)
    assert (here.gate, there.gate) == (None, {"model": "mine@1"})
    assert (taken_on(H200), taken_on(H100)) == ("mine@1", "own@1")


def test_a_gpu_in_the_name_is_meant_alone(shared, mine):
    for name, hardware in (
        ("NVIDIA-H100-matmul", H100), ("h200-matmul", H200), (f"{H100.slug}/default", H100),
        (f"{H200.slug}/shared@3", H200),
    ):  # fmt: skip
        assert registry.resolve(name) == registry.resolve_for(name, H200.slug) == shared
        assert registry.gpu_named(name) == hardware
    assert registry.gpu_named("shared@3") is registry.gpu_named("matmul") is None
    problem = Problem.make("mm", 512, 512, 512, "float16")
    times = {
        predict_choice(problem, name).predicted_us
        for name in ("NVIDIA-H100-matmul", "NVIDIA-H200-matmul", "shared@3")
    }
    assert len(times) == 2  # the last two are of the H200
    registry.set_default(mine(), H200.slug)
    assert register_model("NVIDIA-H100-matmul") == "shared@3"
    assert (taken_on(H200), taken_on(H100)) == ("mine@1", "shared@3")
    assert register_model("shared@3") == "shared@3"
    assert taken_on(H200) == "shared@3"


def test_it_is_found_by_name_for_each_of_its_gpus(shared, ship):
    for name in ("default", "shared", "shared@3"):
        assert registry.resolve(name) == shared  # the default of both
        for hardware in (H200.name, H100.slug):
            assert registry.resolve(name, hardware) == shared
    assert registry.resolve("nvidia-h200/shared") == shared
    assert registry.resolve(f"{H100.slug}/default") == shared
    ship("shared", 3, hardware=H100)  # a model of the GPU's own folder goes first
    assert registry.resolve("shared@3", H100.slug).slug == H100.slug
    assert registry.resolve("shared@3", H200.slug) == shared
    assert taken_on(H100) == "shared@3"
    assert registry.best_for(H100).model == shared  # type: ignore[union-attr]
    for unknown in ("nvidia-h200/own", "elsewhere/default", "/default", "../nvidia-h200/default"):
        with pytest.raises(NoSuchModelError):
            registry.resolve(unknown)
    with pytest.raises(NoSuchModelError):
        registry.resolve("shared", "NVIDIA A100-SXM4-80GB")


def test_a_listing_says_on_which_gpus_it_is_taken(shared):
    seen = registry.overview()
    assert seen.problems == ()
    found = {entry.model.reference: entry for entry in seen.entries}
    assert set(found["shared@3"].taken) == {H200.name, H100.name}
    assert found["shared@3"].aliases == ("default", f"{H100.slug}/default")
    assert found["own@1"].taken == {}
    line = found["shared@3"].to_dict()
    assert line["taken_on"] == [H200.name, H100.name]
    assert (line["from"], line["gpus"]) == ("shipped", [H200.name, H100.name])


def test_what_is_known_of_a_gpu_is_of_its_own_record(shared):
    taken = dict(registry.taken_for_all())
    assert taken.keys() >= {H200, H100}
    known = taken[H100].describe_basis(H100)
    assert known == "from 2,000 timings of this GPU, 0.970 on held-out problems"
    other = KNOWN["NVIDIA H100"]
    assert "by transfer from NVIDIA H100 80GB" in taken[other].describe_basis(other)


def test_figures_alone_make_a_gpu_its_own(ship):
    """The model was judged on the GPU's held-out problems, and has learned none of its timings."""
    ship("judged", gpus=(BOTH[0], GpuRecord(H100, 0, 0, {"efficiency": 0.975})))
    match = registry.best_for(H100)
    assert (match.hardware, match.likeness) == (H100, 1)
    known = match.describe_basis(H100)
    assert known == "from other GPUs' timings, 0.975 on held-out problems of this GPU"


def test_what_was_learned_on_another_gpu_only_is_borrowed(ship):
    """The model has learned float16 on the H200 alone, and so asks for a larger gain with them."""
    ship("shared", gpus=(BOTH[0], replace(BOTH[1], op_types=("mm bfloat16",))))
    problems = [Problem.make("mm", 512, 512, 512, dtype) for dtype in ("bfloat16", "float16")]
    library = [Candidate("aten::mm")]
    for gpu, borrowed in ((H200, 1.0), (H100, H100.likeness(H200))):
        predictor = registry.load_predictor(gpu)
        found = [predictor.predict(problem, library).likeness for problem in problems]
        assert found == [1.0, borrowed]
    ship("whole", gpus=BOTH)  # other choices may follow, so caches must not mix the two
    identities = {registry.resolve(name).manifest.identity for name in ("shared@1", "whole@1")}
    assert len(identities) == 2


def test_other_facts_of_the_same_gpu_do_not_outdo_a_default(shared, mine):
    """The clock of this H100 is another one than the shipped record's."""
    here = replace(H100, clock_mhz=1755)
    assert taken_on(here) == "shared@3"
    match = registry.best_for(here)
    assert match.likeness == 0.995
    tuned = mine(hardware=here, name="tuned")
    assert taken_on(here) == "shared@3"  # a draft
    registry.set_default(tuned)
    assert taken_on(here) == "tuned@1"


def test_a_model_that_another_gpu_takes_is_not_removed(shared, mine):
    both = mine(gpus=BOTH)
    registry.set_default(both, H100.slug)
    with pytest.raises(RegistryError, match=f"{H100.slug}/default"):
        registry.remove(both)
    registry.remove(both, aliases=True)
    assert taken_on(H100) == "shared@3"
    assert registry.overview().problems == ()


def test_its_card_has_the_figures_of_each_gpu(shared):
    text = registry.card(shared, registry.facts_of(shared))
    assert text.startswith("# shared@3, for NVIDIA H200 and NVIDIA H100 80GB HBM3\n")
    assert "| NVIDIA H200 | 9,000 | 300 | 50 | 0.98 |  |  |" in text
    assert "| NVIDIA H100 80GB HBM3 | 2,000 | 100 | 20 | 0.97 | 0.93 |  |" in text
    side = registry.side_by_side(shared)
    assert side["hardware"] == "NVIDIA H200, NVIDIA H100 80GB HBM3"
    assert side["NVIDIA H100 80GB HBM3: efficiency"] == 0.97
