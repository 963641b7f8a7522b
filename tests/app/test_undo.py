"""U takes back the last change of tags, roll-back or deletion that was made here."""

import pytest

from diode_engine import registry
from diode_engine.core.hardware import H200
from tests.app.registered import register_model
from tests.app.trained import make_training
from tests.app.waiting import burst, enter, press, running, toasts

pytestmark = pytest.mark.usefixtures("nothing_shipped")


async def test_tags_of_a_run(make_app, store):
    run = make_training(store, "trees", 0.9)
    store.tag(run, "old", "both")
    async with running(make_app(), (120, 40), "R", "a") as (app, pilot):
        await enter(pilot, "both new")
        assert store.run(run).tags == ("both", "new")
        await press(pilot, "U")
        assert store.run(run).tags == ("both", "old")
        await press(pilot, "U")
        assert toasts(app)[-1] == "There is nothing to undo."


async def test_tags_of_a_model_and_its_deletion(make_app, store, tmp_path):
    model = register_model(tmp_path / "made", "plain", default=True)
    registry.set_note(model, "the first")
    async with running(make_app(), (120, 40), "M", "t") as (app, pilot):
        await enter(pilot, "night")
        await press(pilot, "U")
        assert registry.facts_of(model).tags == ()
        await press(pilot, "t")
        await enter(pilot, "night")
        await press(pilot, "d", "y")
        assert registry.list_models() == []
        await press(pilot, "U")
        assert "plain@1 is there again, as plain@2." in toasts(app)
        facts = registry.facts_of(*registry.list_models())
        assert (facts.note, facts.tags) == ("the first", ("night",))
        assert registry.aliases_for(H200.slug) == {"default": "plain@2"}


async def test_a_roll_back(make_app, store, tmp_path):
    first = register_model(tmp_path / "made", "first", default=True)
    second = register_model(tmp_path / "made", "second", default=True)
    registry.set_verdict(second, registry.ModelStatus.VALIDATED, {"passed": True})
    async with running(make_app(), (120, 40)) as (_app, pilot):
        await burst(pilot, "M", "b")  # which action there is, is known when it has read
        await press(pilot, "y")
        assert registry.aliases_for(H200.slug) == {"default": first.reference}
        await press(pilot, "U")
        assert registry.aliases_for(H200.slug) == {"default": second.reference}
        assert registry.facts_of(second).status is registry.ModelStatus.VALIDATED
