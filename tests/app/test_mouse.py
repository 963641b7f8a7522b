"""Whatever comes in front of a screen can be left by the mouse alone."""

from diode_app.screens.help import Help
from diode_app.widgets.modals import (
    Choose,
    Confirm,
    ErrorDialog,
    HeadlessCommands,
    Notice,
    PickOne,
    Prompt,
    Working,
)
from tests.app.waiting import click_on, running, settled

NAMES = [("a", "one"), ("b", "two")]


DIALOGS = (  # the dialog, the words to click on, and its result
    (lambda: Confirm("Do it?"), "No (n)", False),
    (lambda: Notice("Title", "words"), "Close", None),
    (lambda: ErrorDialog("It failed."), "Close", None),
    (lambda: Working("It works"), "Escape: it continues", None),
    (lambda: Prompt("Which?", "this"), "Escape leaves", None),
    (lambda: Prompt("Which?", "this"), "Enter takes it", "this"),
    (lambda: Prompt("Which?", "no", check=lambda _: "Not that."), "Escape leaves", None),
    (lambda: HeadlessCommands(NAMES), "Escape leaves", None),
    (lambda: HeadlessCommands(NAMES), "Enter takes it", "one"),
    (lambda: Choose("Some", ["a", "b"], ["b"]), "Use these", ("b",)),
    (lambda: Choose("Some", ["a", "b"], ["b"]), "Escape leaves", None),
    (lambda: PickOne("One", NAMES), "Escape leaves", None),
    (lambda: PickOne("One", NAMES), "two", "b"),
)


async def test_every_dialog(make_app, store):
    async with running(make_app(), (80, 24)) as (app, pilot):
        the_help = (lambda: Help(app.session, app.screen)), "Escape closes it", None
        for dialog, words, result in (*DIALOGS, the_help):
            given = []
            shown = dialog()
            app.push_screen(shown, given.append)
            await settled(pilot)
            await click_on(pilot, words)
            assert app.screen is not shown, words
            assert given == [result]
