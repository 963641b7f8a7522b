"""Links to runs, problems, models and lists, and what the palette finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.command import CommandPalette
from textual.widgets import OptionList

from diode_app.links import Link, LinkError, link, link_to
from diode_app.main import main
from diode_app.screens.data import DataScreen
from diode_app.screens.home import HomeScreen
from diode_app.screens.model import ModelScreen
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.run import RunScreen
from diode_app.screens.runs import RunsScreen
from diode_app.screens.settings import SettingsScreen
from diode_app.settings import Settings, load
from diode_app.widgets.modals import ErrorDialog, HeadlessCommands
from diode_engine.core.hardware import H200
from diode_engine.errors import QueryError
from diode_engine.store import Store
from tests.app.registered import register_model
from tests.app.trained import make_training
from tests.app.waiting import burst, lines_of, press, running, settled, text_of
from tests.training.conftest import make_timings

TIMINGS = make_timings(12)


@pytest.fixture
def filled(store, tmp_path):
    """Fills the store with timings, a training and a model; the number of the training's run."""
    store.import_table(TIMINGS, key="x", spec={})
    register_model(tmp_path / "made", "plain")
    run = make_training(store, "trees", 0.9, trees=0.3)
    store.tag(run, "paper")
    return run


@pytest.mark.parametrize(
    ("given", "query", "found"),
    [
        (None, None, None),
        ("run/11", None, Link("runs", "11")),
        ("problem/501", None, Link("data", "501")),
        ("model/gemm@6", None, Link("models", "gemm@6")),
        ("validate", None, Link("validate")),
        ("runs", "kind:train", Link("runs", filter="kind:train")),
        (None, "op:bmm", Link("data", filter="op:bmm")),
        ("sql", "SELECT 1", Link("sql", filter="SELECT 1")),
    ],
)
def test_a_link_says_where_to(given, query, found):
    assert link(given, query) == found
    if found is not None and not found.filter:
        assert str(found) == given


@pytest.mark.parametrize(
    ("given", "query", "error"),
    [
        ("nowhere", None, LinkError), ("run/x", None, LinkError), ("runs/11", None, LinkError),
        ("run/", None, LinkError), ("run/11", "op:mm", LinkError), ("models", "a", LinkError),
        ("data", "op:nothing", QueryError), ("runs", "m>1", QueryError),
    ],
)  # fmt: skip
def test_a_link_that_leads_nowhere_is_refused(given, query, error):
    with pytest.raises(error):
        link(given, query)


def test_the_command_refuses_it_before_it_starts(capsys):
    assert main(["--open=nowhere"]) == 2
    assert "run/NUMBER" in capsys.readouterr().err
    assert main(["--filter=op:nothing"]) == 2


def test_a_command_opens_it_again(tmp_path):
    command = Link("data", filter="op:mm m<=64").command(tmp_path / "a b.db", read_only=True)
    assert command == (
        f"diode-tui '--store={tmp_path}/a b.db' --read-only --open=data '--filter=op:mm m<=64'"
    )


@pytest.mark.parametrize(
    ("wanted", "screen", "words"),
    [
        (Link("runs", "2"), RunScreen, "Run 2, train"),
        (Link("data", "3"), ProblemScreen, "candidates"),
        (Link("models", "plain@1"), ModelScreen, "plain@1"),
        (Link("runs", filter="kind:train"), RunsScreen, "1 run · filter: kind:train"),
        (Link("data", filter="op:bmm"), DataScreen, "filter: op:bmm"),
    ],
    ids=str,
)
async def test_the_dashboard_begins_with_what_a_link_names(make_app, filled, wanted, screen, words):
    async with running(make_app(wanted=wanted), (120, 40)) as (app, pilot):
        assert isinstance(app.screen, screen)
        assert words in text_of(app)
        here = link_to(app.screen)
        assert (here.place, here.filter) == (wanted.place, wanted.filter)
        await pilot.press("y")  # the link is the first of what can be copied
        await settled(pilot)
        assert isinstance(app.screen, HeadlessCommands)
        await press(pilot, "y")
        assert app.clipboard == here.command(app.session.location)
        assert f"--open={here}" in app.clipboard


async def test_a_model_of_one_gpu_is_opened_where_another_has_its_name(
    make_app, filled, tmp_path, monkeypatch
):
    register_model(tmp_path / "other", "plain", hardware=replace(H200, name="NVIDIA A100"))
    dashboard = make_app(wanted=link("model/nvidia-a100/plain@1"))
    async with running(dashboard, (120, 40)) as (app, _pilot):
        assert isinstance(app.screen, ModelScreen)
        assert "NVIDIA A100" in text_of(app)
        assert str(link_to(app.screen)) == "model/nvidia-a100/plain@1"
    async with running(make_app(wanted=link("model/plain@1")), (120, 40)) as (app, _pilot):
        assert isinstance(app.screen, ErrorDialog)
        assert "model/nvidia-h200/plain@1" in text_of(app)


async def _ask(pilot, words: str) -> list[str]:
    await press(pilot, "colon")
    await burst(pilot, words)
    found = pilot.app.screen.query_one(OptionList)
    return [str(found.get_option_at_index(i).prompt) for i in range(found.option_count)]


FOUND = [
    ("paper", "run 2 · train", RunScreen),
    ("train 2", "run 2 · train", RunScreen),
    ("mm 1329", "problem 3 ·", ProblemScreen),
    ("bf16 1329 mm 16", "problem 3 ·", ProblemScreen),
    ("mm", "12 problems · op:mm", DataScreen),
    ("settings", "Settings", SettingsScreen),
    ("undo", "Undo", HomeScreen),
    ("setting theme", "setting theme", SettingsScreen),
    ("model plain", "model plain@1", ModelScreen),
    ("id:3", "problem 3 ·", ProblemScreen),
    ("op:mm", "problems · op:mm", DataScreen),
    ("tall ones", "filter tall ones", DataScreen),
    ("run/2", "run/2", RunScreen),
    ("run/1", "run/1", RunScreen),
    ("problem/3", "problem/3", ProblemScreen),
    ("model/plain@1", "model/plain@1", ModelScreen),
    ("model/nvidia-h200/plain@1", "model/nvidia-h200/plain@1", ModelScreen),
]


async def test_everything_is_found_and_opened(make_app, filled, tmp_path):
    app = make_app()
    app.session.settings = Settings(filters={"tall ones": "data m>64"})
    async with running(app, (120, 40)) as (_, pilot):
        for words, found, screen in FOUND:
            first = (await _ask(pilot, words))[0]
            assert found in first, words
            await press(pilot, "enter")
            assert isinstance(app.screen, screen), words
            await press(pilot, "escape", "H")
        assert (await _ask(pilot, "diode-light"))[0].startswith("theme diode-light")
        await press(pilot, "enter")
        assert (app.theme, load(tmp_path / "dashboard.toml").theme) == ("diode-light",) * 2


async def test_what_begins_with_the_words_comes_before_what_has_their_letters(make_app, filled):
    with Store.open(make_app().session.location) as store:
        store.set_note(filled, "a note that has more words than a line of the palette has room for")
    async with running(make_app(), (80, 24)) as (app, pilot):
        found = await _ask(pilot, "run")
        assert found[0].startswith("Runs")
        assert found[1].startswith("run 2")  # the last one first
        assert found[2].startswith("run 1")
        assert found[3].startswith("setting run columns")
        lines, heads = lines_of(app), [words[:16] for words in found[:4]]
        shown = [next(i for i, line in enumerate(lines) if head in line) for head in heads]
        assert shown == list(range(shown[0], shown[0] + 4))  # one line each


async def test_without_a_store_the_palette_finds_the_rest(make_app):
    async with running(make_app(), (120, 40)) as (app, pilot):
        assert any("setting rows" in line for line in await _ask(pilot, "setting rows"))
        assert isinstance(app.screen, CommandPalette)


async def test_what_is_not_there_is_told_and_not_found(make_app, filled):
    async with running(make_app(wanted=Link("runs", "77"))) as (app, pilot):
        assert isinstance(app.screen, ErrorDialog)
        assert "77" in text_of(app)
        await pilot.press("escape")
        for words in ("run/77", "problem/501", "model/none@1"):
            assert not any(words in line for line in await _ask(pilot, words))
            await pilot.press("escape")
