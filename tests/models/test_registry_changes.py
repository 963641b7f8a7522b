"""What may change about models: aliases and their history, status, tags, notes, removal."""

from __future__ import annotations

import os
import threading

import pytest

from diode_engine import registry
from diode_engine.core.hardware import H200
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError
from diode_engine.registry import ModelStatus
from tests.models.conftest import ship_default

pytestmark = pytest.mark.usefixtures("shipped")

SLUG = H200.slug


def default() -> str | None:
    found = registry.default_for(SLUG)
    return None if found is None else found.reference


def test_rolling_back_goes_through_the_history(model, ship, shipped):
    ship("gemm")
    ship_default(shipped, "gemm@1")
    first, second, third = (registry.register(model, "mine") for _ in range(3))
    for promoted in (first, second):
        registry.set_default(promoted)
    assert registry.last_change(SLUG) == ("mine@2", "mine@1")
    assert registry.rollback(SLUG) == first
    assert registry.last_change(SLUG) == ("mine@1", None)
    assert default() == "mine@1"
    registry.set_default(third, reason="better")
    assert registry.rollback(SLUG, reason="worse") == first
    assert registry.rollback(SLUG) is None  # what Diode ships counts again
    assert default() == "gemm@1"
    for ask in (registry.rollback, registry.last_change):
        with pytest.raises(NoSuchModelError, match="nothing to go back to"):
            ask(SLUG)
    told = [(str(e.event), e.before, e.model, e.reason) for e in registry.history(SLUG)]
    assert told == [
        ("alias", None, "mine@1", ""),
        ("alias", "mine@1", "mine@2", ""),
        ("rollback", "mine@2", "mine@1", ""),
        ("alias", "mine@1", "mine@3", "better"),
        ("rollback", "mine@3", "mine@1", "worse"),
        ("rollback", "mine@1", None, ""),
    ]
    assert [registry.status_of(m) for m in (first, second, third)] == [ModelStatus.RETIRED] * 3


def test_what_was_rolled_back_is_not_taken_as_the_newest(model):
    first = registry.register(model, "mine")
    second = registry.register(model, "mine", default=True)
    registry.rollback(SLUG)
    assert default() is None
    assert [m.model for m in registry.matches(H200)] == [first]
    registry.set_default(second)  # a person's word counts
    assert registry.matches(H200)[0].model == second


def test_a_damaged_model_is_not_rolled_back_to(model):
    first = registry.register(model, "mine", default=True)
    registry.register(model, "mine", default=True)
    weights = next(first.folder.glob("*.safetensors"))
    weights.write_bytes(b"x")
    with pytest.raises(ModelError):
        registry.rollback(SLUG)
    assert default() == "mine@2"
    registry.remove(first)
    with pytest.raises(RegistryError, match=r"mine@1, .*has been removed"):
        registry.rollback(SLUG)


def test_a_number_is_never_given_twice(model):
    registry.register(model, "mine")
    last = registry.register(model, "mine", default=True)
    with pytest.raises(RegistryError, match="mine@2 is default"):
        registry.remove(last)
    assert last.folder.is_dir()
    registry.remove(last, aliases=True)
    assert not last.folder.exists()
    assert default() is None
    with pytest.raises(NoSuchModelError, match="gone already"):
        registry.remove(last)
    assert registry.register(model, "mine").version == 3
    assert sorted(p.name for p in last.folder.parent.iterdir()) == ["1", "3"]


def test_shipped_models_stay_and_can_be_annotated(ship):
    folder = ship("gemm")
    shipped = registry.resolve("gemm")
    with pytest.raises(RegistryError, match="not one of your own"):
        registry.remove(shipped)
    assert registry.status_of(shipped) is ModelStatus.VALIDATED
    registry.tag(shipped, ["b", "a", "a"])
    registry.tag(shipped, ["c"], ["b"])
    registry.set_note(shipped, "Slow for M = 1.")
    known = registry.facts_of(shipped)
    assert (known.tags, known.note) == (("a", "c"), "Slow for M = 1.")
    assert "Slow for M = 1." in registry.card(shipped, known)
    with pytest.raises(RegistryError, match="4000"):
        registry.set_note(shipped, "x" * 4001)
    assert [p.name for p in folder.parent.parent.iterdir()] == ["gemm"]


def test_an_alias_is_one_name_for_one_model(model):
    mine = registry.register(model, "mine")
    assert registry.set_alias("candidate", mine)
    assert registry.resolve("candidate") == mine
    assert registry.aliases_for(SLUG) == {"candidate": "mine@1"}
    with pytest.raises(RegistryError, match="is an alias"):
        registry.register(model, "candidate")
    registry.remove_alias("candidate", SLUG)
    with pytest.raises(NoSuchModelError, match="no alias candidate"):
        registry.remove_alias("candidate", SLUG)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_registry_is_said(model, diode_home):
    diode_home.mkdir(mode=0o500)
    with pytest.raises(RegistryError, match="cannot be written"):
        registry.register(model)


def test_changes_made_at_once_are_all_kept(model):
    mine = registry.register(model, "mine")
    words = [[f"{who}{i}" for i in range(8)] for who in "abcd"]
    start = threading.Barrier(len(words))

    def work(mine: registry.ModelVersion, tags: list[str]) -> None:
        start.wait()
        for word in tags:
            registry.tag(mine, [word])

    # Each change opens the lock anew, so threads exclude each other as processes do.
    workers = [threading.Thread(target=work, args=(mine, some)) for some in words]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert registry.facts_of(mine).tags == tuple(sorted(w for some in words for w in some))
