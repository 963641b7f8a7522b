"""Jump mode: a letter at each field, table and tab."""

from __future__ import annotations

from textual.widgets import Input, Static, TabbedContent, TextArea

from diode_app.widgets.jump import Jump, jump_targets
from tests.app.waiting import lines_of, press, running


def letters(app) -> dict[str, tuple[int, int]]:
    """The letters that are shown, and where."""
    return {str(label.content): label.region.offset for label in app.screen.query(Static)}


async def test_a_letter_goes_to_the_table_or_field_that_it_is_at(make_app, filled):
    async with running(make_app(), (120, 40), "Q") as (app, pilot):
        page = app.screen
        area, schema = page.query_one(TextArea), page.query_one("#sql-schema").grid
        await press(pilot, "n", "ctrl+o")  # the apostrophe is a letter of the statement
        assert isinstance(app.screen, Jump)
        at = {place: letter for letter, place in letters(app).items()}
        x, y = schema.region.offset
        assert lines_of(app)[y][x : x + 3].strip() == at[schema.region.offset]
        await press(pilot, at[schema.region.offset])
        assert (app.screen, app.focused) == (page, schema)
        await press(pilot, "apostrophe", at[area.region.offset])
        assert app.focused is area
        await press(pilot, "escape", "apostrophe", "7")  # another key does nothing
        assert app.screen is page
        assert "7" not in page.query_text
        before, field = jump_targets(page), Input()  # which has no place yet, and gets no letter
        await page.mount(field)
        assert field in page.focus_chain
        assert jump_targets(page) == before


async def test_fields_of_a_form_have_letters_from_the_top_and_escape_leaves(make_app, filled):
    async with running(make_app(), (120, 40), "T", "escape", "apostrophe") as (app, pilot):
        shown = letters(app)
        assert list(shown) == sorted(shown)
        assert [place[1] for place in shown.values()] == sorted(y for _, y in shown.values())
        before = app.focused
        await press(pilot, "escape")
        assert not isinstance(app.screen, Jump)
        fields = {field.region.offset: field for field in app.screen.query(Input)}
        letter, place = next((k, place) for k, place in shown.items() if place in fields)
        await press(pilot, "apostrophe", letter)
        assert app.focused is fields[place]
        assert before is not app.focused


async def test_a_letter_shows_a_tab(make_app, filled):
    async with running(make_app(), (120, 40), "D", "enter", "apostrophe") as (app, pilot):
        tabs = next(s for s in app.screen_stack if s.query(TabbedContent)).query_one(TabbedContent)
        second = tabs.query("Tab")[1]
        letter = next(k for k, place in letters(app).items() if place == second.region.offset)
        before = tabs.active
        await press(pilot, letter)
        assert tabs.active != before
