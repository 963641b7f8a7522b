"""Processes with equal fingerprints choose alike; what differs is found and said."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor import config

import diode_engine
from diode_engine.choosing import policy
from diode_engine.choosing.fingerprint import Fingerprint
from diode_engine.cli import doctor
from diode_engine.core.hardware import H200
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.current import current_chooser
from diode_engine.inductor.hook import ranks
from diode_engine.inductor.hook.fingerprint import read_fingerprint
from diode_engine.inductor.without_gpu import lower
from diode_engine.location import location_of
from tests.inductor_nogpu.conftest import FixedPredictor, Rule, build_of, gemm
from tests.ranks import Rank, run_ranks


def install(predictor: Any, **options: Any) -> Fingerprint:
    assert diode_engine.install_diode_choices(predictor=predictor, **options)
    return read_fingerprint()


def test_a_fingerprint_changes_with_all_that_a_choice_depends_on(monkeypatch):
    usual = install(FixedPredictor())
    assert install(FixedPredictor()) == usual
    others = {
        "model": install(FixedPredictor(identity="another")),
        "top": install(FixedPredictor(), top_k_configs=2),
    }
    assert diode_engine.install_diode_choices(predictor=FixedPredictor())
    for name, value in {"diode_top_k": 2, "max_autotune_gemm_backends": "ATEN"}.items():
        with config.patch({name: value}):
            others[name] = read_fingerprint()
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
        others["tf32"] = read_fingerprint()
    with config.patch({"test_configs.max_mm_configs": 3}):
        others["search"] = read_fingerprint()
    monkeypatch.setattr("diode_engine.inductor.choosing.product_chooser.RULES", policy.RULES + "x")
    others["rules"] = install(FixedPredictor())
    for name, other in others.items():
        assert other.key != usual.key
        assert other.describe_differences(usual) == (
            f"{name} {other.parts[name]}, not {usual.parts[name]}"
        )
    with config.patch(diode_cache_predictions=False):  # changes no choice
        assert read_fingerprint() == others["rules"]
    diode_engine.uninstall_diode_choices()
    assert read_fingerprint().parts["choices"] == "off (Diode's choices were uninstalled)"


@pytest.mark.usefixtures("predictor")
def test_the_status_and_doctor_show_the_fingerprint(tmp_path):
    status = json.loads(json.dumps(diode_engine.get_integration_status()))
    assert (status["hardware"]["name"], status["torch"]) == (H200.name, torch.__version__)
    assert status["fingerprint"] == read_fingerprint().to_dict()
    assert status["fingerprint"]["parts"]["model"] == "fixed"
    _, why = dict(doctor._checks(location_of(tmp_path / "a.db")))["fingerprint"]
    assert status["fingerprint"]["key"] in why


def test_what_was_chosen_under_other_options_is_not_remembered():
    """As on a rank that has compiled a graph which another rank has found in a cache."""
    install(Rule(lambda _, c: 1.0 if c.template == "decompose_k" else 5.0), top_k_configs=1)
    with diode_engine.profile_predictions() as profile:
        for splits in (10, 0):
            product = build_of(torch.mm, (256, 16384), (16384, 256))
            lower(product, options={"triton.num_decompose_k_splits": splits})
    taken = [choice.candidates[0].template for choice in profile.selections]
    assert taken == ["decompose_k", "aten::mm"]


@pytest.fixture
def store(monkeypatch):
    """The store of a program of three ranks, of which this process is rank 1."""
    distributed = pytest.importorskip("torch.distributed")
    shared = distributed.HashStore()
    monkeypatch.setattr(ranks, "default_store", lambda: shared)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(ranks, "_started", threading.Event())
    return shared


def exchanged(store: Any, fingerprints: Sequence[Fingerprint], timeout: float) -> list[list[str]]:
    """What the ranks with these fingerprints find, of a program with one rank more or as many."""
    with ThreadPoolExecutor() as pool:
        found = [
            pool.submit(ranks.exchange, store, "a", rank, 3, each, timeout)
            for rank, each in enumerate(fingerprints)
        ]
        return [each.result() for each in found]


def test_every_rank_hears_which_ranks_differ_in_what(store):
    a, b = ({"model": name, "rules": "1"} for name in "ab")
    found = exchanged(store, [Fingerprint(parts) for parts in (a, b, a)], 60)
    difference = "Rank 1 does not choose kernels as rank 0 does: model b, not a."
    assert found == [[difference]] * 3


@pytest.mark.parametrize("there", [1, 2])
def test_a_rank_that_does_not_take_part_stops_no_other(store, there):
    usual = Fingerprint({"model": "a"})
    absent = ", ".join(map(str, range(there, 3)))
    with pytest.raises(IntegrationError, match=f"within 0.1 s: {absent}\\."):
        exchanged(store, [usual] * there, 0.1)
    with pytest.raises(IntegrationError, match=r"within 0.1 s: 0\."):
        ranks.exchange(store, "b", 1, 3, usual, 0.1)


@pytest.mark.usefixtures("store")
def test_a_store_that_fails_is_named(monkeypatch):
    class Fails(torch.distributed.Store):
        """As the store of torch's fake process groups."""

    monkeypatch.setattr(ranks, "default_store", Fails)
    with pytest.raises(IntegrationError, match="the store of torch"):
        diode_engine.compare_ranks()


def test_without_ranks_there_is_nothing_to_compare():
    assert diode_engine.compare_ranks() == []


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.usefixtures("predictor")
def test_the_first_compile_compares_with_the_rank_before(store, caches, caplog):
    for model, warnings in ("fixed", 0), ("another", 1):
        ranks._started.clear()
        parts = {**current_chooser().identity_parts, "model": model}
        store.set("diode/first", json.dumps({"rank": 2, "parts": parts}))
        if caches:
            assert config.diode_state  # as a cache's key reads it
        else:
            lower(gemm)
        for thread in threading.enumerate():
            if thread.name == ranks.THREAD:
                thread.join()
        found = [each for each in caplog.messages if "Rank 1" in each]
        assert len(found) == warnings
    assert "as rank 2 does: model fixed, not another. Give all ranks the same" in found[0]


@pytest.mark.usefixtures("predictor", "store")
def test_a_store_that_answers_nothing_hinders_no_compile(monkeypatch):
    asked, compiled, answers = threading.Event(), threading.Event(), []

    def compare_set(*_):
        asked.set()
        answers.append(compiled.wait(10))

    monkeypatch.setattr(ranks, "default_store", lambda: SimpleNamespace(compare_set=compare_set))
    assert lower(gemm).seen
    assert not answers
    compiled.set()
    assert asked.wait(10)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without c10d")
def test_ranks_choose_alike_whatever_their_caches_seeds_and_threads_are(tmp_path):
    """Of DDP, FSDP2 and tensor parallelism, by the shipped model."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "caches"), "PYTHONHASHSEED": "1"}
    another_machine = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "others"), "PYTHONHASHSEED": "2",
        "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX",
    }  # fmt: skip
    without_caches = {
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "PYTHONHASHSEED": "3",
        "DIODE_CONFIDENCE_THRESHOLD": "0.01",
    }  # fmt: skip
    cold, elsewhere = run_ranks(tmp_path, Rank(caches), Rank(another_machine, others=True))
    warm, uncached = run_ranks(tmp_path, Rank(caches), Rank(without_caches))
    assert list(cold["steps"]) == ["ddp", "fsdp2", "tensor_parallel"]
    for name, programs in cold["steps"].items():
        assert any("triton_tem" in call for calls in programs for call in calls)
        for other in (elsewhere, warm, uncached):
            assert other["steps"][name] == programs
    assert warm["hits"] > cold["hits"]
    assert uncached["hits"] == 0
    assert not any(rank["fallbacks"] for rank in (cold, elsewhere, warm, uncached))
    assert cold["differences"] == elsewhere["differences"] == []
    assert warm["differences"] == uncached["differences"]
    (difference,) = warm["differences"]
    assert "Rank 1 " in difference
    assert difference.endswith("diode_confidence_threshold 0.01, not 0.0.")
