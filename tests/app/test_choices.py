"""Names in a row, by keys and by clicks."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from diode_app.widgets.choices import Choices

NAMES = ("mm", "addmm", "bmm", "baddbmm")


class Shown(App[None]):
    CSS = "Choices { width: 24; }"  # room for two in a row

    def __init__(self, choices: Choices) -> None:
        super().__init__()
        self._shown = choices
        self.changes: list[tuple[str, ...]] = []

    def compose(self) -> ComposeResult:
        yield self._shown

    def on_choices_changed(self, event: Choices.Changed) -> None:
        self.changes.append(event.choices.chosen)


@pytest.mark.parametrize(
    ("choices", "keys", "changes"),
    [
        (Choices(NAMES, NAMES, several=True), "right space left left space",
         [("mm", "bmm", "baddbmm"), ("mm", "bmm")]),
        (Choices(NAMES, ("bmm",)), "left space", [("addmm",)]),
    ],
    ids=["several", "one"],
)  # fmt: skip
async def test_by_keys(choices, keys, changes):
    async with Shown(choices).run_test() as pilot:
        await pilot.press("tab", *keys.split())
        assert pilot.app.changes == changes
        assert choices.chosen == changes[-1]


@pytest.mark.parametrize(
    ("at", "chosen"), [((1, 0), "mm"), ((9, 0), "addmm"), ((1, 1), "bmm"), ((13, 1), "baddbmm")]
)
async def test_by_clicks_in_every_row(at, chosen):
    choices = Choices(NAMES, (), several=True)
    async with Shown(choices).run_test() as pilot:
        await pilot.click(Choices, offset=at)
        assert choices.chosen == (chosen,)
        await pilot.click(Choices, offset=at)
        assert choices.chosen == ()
        await pilot.click(Choices, offset=(7, 0))  # the gap
        await pilot.click(Choices, offset=(23, 0))
        assert choices.chosen == ()


async def test_other_names_are_offered():
    choices = Choices(("a", "b"), ("b",))
    async with Shown(choices).run_test() as pilot:
        choices.offer(("b", "c"))
        assert choices.chosen == ("b",)
        choices.offer(("c", "d"))
        assert choices.chosen == ("c",)
        await pilot.press("tab", "right")
        assert choices.chosen == ("d",)


@pytest.mark.parametrize("width", [11, 17, 23, 30, 43])
async def test_a_box_is_on_the_line_of_its_name(width):
    choices = Choices(NAMES, NAMES, several=True)
    choices.styles.width = width
    async with Shown(choices).run_test() as pilot:
        await pilot.pause()
        lines = [
            "".join(s.text for s in choices.render_line(y)) for y in range(choices.size.height)
        ]
        names = [name for line in lines for name in line.replace("\u00a0", " ").split("[x] ")[1:]]
        assert [name.strip() for name in names] == list(NAMES)
