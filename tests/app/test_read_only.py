"""With --read-only nothing is written anywhere: every action of every screen is done, every
question is answered with yes, and Python tells of each file that is opened for writing."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Container
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import zstandard
from textual.widgets import Button, Input

from diode_app.actions import Action, Actions
from diode_app.app import DiodeApp
from diode_app.data.models import compare
from diode_app.data.models import models as all_models
from diode_app.data.programs import Source
from diode_app.screens.candidate import CandidateScreen
from diode_app.screens.compare import CompareRunsScreen, CompareScreen
from diode_app.screens.model import ModelScreen
from diode_app.screens.places import PAGES, PLACES
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.program import ProgramScreen
from diode_app.screens.run import RunScreen
from diode_app.screens.runs import RunsScreen
from diode_app.screens.validate_new import NewValidationScreen
from diode_app.widgets.modals import Choose, Confirm, ErrorDialog, PickOne, Prompt
from diode_engine.core.hardware import H200
from diode_engine.problems.sources import write_shapeset
from diode_engine.runs.process import current_process
from diode_engine.store import write_dataset
from tests.app.judged import judge
from tests.app.registered import register_model
from tests.app.waiting import running, settled, text_of
from tests.training.conftest import make_timings

TIMINGS = make_timings(20)
EARLIER = Path(__file__).parents[1] / "store" / "earlier" / "schema-0002.db.zst"
REFUSED = "was started with --read-only"

# What changes something, and says that it does not. An action that writes has to be here, and
# what it does has to go through StoreAccess.write, change or command, or ask must_be_writable.
WRITING = {
    "home.import", "data.import", "data.export-dataset", "table.export", "plot.export", "app.undo",
    "collect.import", "collect.start", "train.import", "train.start", "validate.new",
    "validation.start", "runs.pin", "runs.cancel", "runs.resume", "runs.tag", "runs.note",
    "models.promote", "models.rollback", "models.validate", "models.export-model", "models.delete",
    "models.alias", "models.tag", "models.note", "models.import-model",
    "program.collect", "program.tune", "programs.sizes",
}  # fmt: skip

_HARMLESS = {"Validate", "Collect"}  # the places
_watched: list[str] | None = None
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ON_FILES = (
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
    "os.symlink", "os.truncate", "os.utime", "os.setxattr", "os.kill", "os.system",
    "os.posix_spawn", "os.exec",
)  # fmt: skip


def _audit(event: str, given: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    if event == "open":
        path, _, flags = given
        # A temporary file without a name opens its folder, in which it never is.
        unnamed = isinstance(path, str) and Path(path).is_dir()
        written = flags & _WRITES and not unnamed and path != os.devnull
    elif event == "sqlite3.connect":
        written = "mode=ro" not in str(given[0])
    elif event == "subprocess.Popen":
        command = " ".join(map(str, given[1]))
        written = "--debug data stats" not in command and command != "uname -p"  # which only read
    else:
        written = event in _ON_FILES
    if written:
        _watched.append(f"{event} {given[:2]}")


sys.addaudithook(_audit)  # for as long as the process lives; it does nothing but in these tests


@pytest.fixture
def written(monkeypatch):
    """What was written since it was last cleared."""
    global _watched
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    _watched = []
    yield _watched
    _watched = None


@pytest.fixture
def folder(tmp_path, monkeypatch, nothing_shipped):
    """Where the dashboard works, with a dataset in it."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_dataset(make_timings(1), folder / "some.json")
    write_shapeset(TIMINGS.problems[:2], folder / "captured.json", "captured from a test")
    monkeypatch.setattr("diode_app.app.shipped_timings", lambda: (folder / "some.json",))
    return folder


@pytest.fixture
def filled(store, tmp_path, folder):
    """Fills the store with timings, a report, a live run and a failed training, and registers two
    models. Returns the number of the training's run."""
    store.import_table(TIMINGS, key="x", spec={})
    model = register_model(tmp_path / "made", "plain", default=True)
    register_model(tmp_path / "made", "other")
    judge(store, model)
    store.start_run("collect", {}, process=current_process())
    run = store.start_run(
        "train", {}, command=("diode-engine", "train", f"--store={store.location}"),
        directory=str(folder),
    )  # fmt: skip
    store.finish_run(run, "failed", "It failed.")
    return run


def _pages(app: DiodeApp, run: int) -> list[Callable[[], Any]]:
    """Functions that make the pages that are opened from another screen."""
    session = app.session
    entries = all_models(None, 0).entries
    one, other = list(entries.values())[:2]
    return [
        lambda: RunScreen(session, run),
        lambda: CompareRunsScreen(session, {run: 0, 1: 1}),
        lambda: ProblemScreen(session, TIMINGS.problems[0].key),
        lambda: CandidateScreen(session, TIMINGS.problems[0], TIMINGS.candidates[0], H200),
        lambda: ProgramScreen(session, Source(Path("captured.json").absolute())),
        lambda: NewValidationScreen(session, ["plain@1"]),
        lambda: ModelScreen(session, next(iter(entries))),
        lambda: CompareScreen(session, compare(one, other)),
    ]


async def _go(pilot: Any, mode: str) -> None:
    await pilot.app.run_action(f"app.go('{mode}')")
    await settled(pilot)


async def _screens(pilot: Any, run: int) -> AsyncIterator[Any]:
    """Shows every screen, and yields each."""
    app = pilot.app
    for place in PLACES:
        await _go(pilot, place.mode)
        yield app.screen
    pages = _pages(app, run)
    assert len(pages) == len(PAGES)
    for page in pages:
        await app.push_screen(page())
        await settled(pilot)
        yield app.screen
        if len(app.screen_stack) > 1:
            await app.pop_screen()


async def _done(pilot: Any) -> None:
    """Waits until no worker works, except one that asks something."""
    idle = 0
    while idle < 2:
        await pilot.pause()
        asking = ("acting", "working") if pilot.app.screen.is_modal else ()
        idle = idle + 1 if all(w.is_finished or w.group in asking for w in pilot.app.workers) else 0


async def _answered(pilot: Any, folder: Path) -> list[str]:
    """Says yes to all questions until none is left. Returns the problems that were shown."""
    problems = []
    while True:
        await _done(pilot)
        screen = pilot.app.screen
        if isinstance(screen, ErrorDialog):
            problems.append(str(screen._words))
        match screen:
            case Confirm():
                answer: Any = True
            case Prompt():
                offered = (
                    screen.query_one(Input).value, "words", str(folder / "some.json"),
                    *(str(folder / f"new{end}") for end in (".json", ".csv", ".diode.zip")),
                )  # fmt: skip
                answer = next(value for value in offered if screen._check(value) is None)
                if screen._take is not None:
                    screen.query_one(Input).value = answer
                    screen.action_take()
                    continue
            case PickOne():
                answer = screen._choices[0][0]
            case Choose():
                answer = screen._names[:1]
            case _ if screen.is_modal:
                answer = None
            case _:
                return problems
        screen.dismiss(answer)


def _actions(screen: Any) -> list[tuple[Any, Action]]:
    """The actions of a screen, of the app, and of each kind of widget on it."""
    nodes = {type(node): node for node in (screen, *screen.walk_children(), screen.app)}
    return [
        (node, action)
        for node in nodes.values()
        for action in getattr(node, "ACTIONS", ())
        if not _leaves(action)
    ]


def _leaves(action: Action) -> bool:
    return action.does.startswith("go(") or action.name in ("back", "quit")


async def _do_all(
    pilot: Any, folder: Path, *, only: str = "", but: Container[str] = ()
) -> dict[str, str]:
    """Does the actions of the screen that is shown. Returns, by id, the problem that each met."""
    app, screen, mode = pilot.app, pilot.app.screen, pilot.app.current_mode
    met = {}
    for node, action in _actions(screen):
        if action.id not in but and only in ("", action.id) and node.is_attached:
            await app.run_action(action.does or action.name, default_namespace=node)
            met[action.id] = " ".join(await _answered(pilot, folder))
            if app.current_mode != mode:
                await app.switch_mode(mode)
            while app.screen is not screen and screen in app.screen_stack:
                await app.pop_screen()
    return met


def _contents(folder: Path) -> dict[str, str]:
    """The hashes of all files below a folder, except SQLite's -wal and -shm."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


async def test_every_action_of_every_screen(
    make_app, filled, folder, tmp_path, written, monkeypatch
):
    """Also what --read-only refuses is offered here, so that it can be done."""
    monkeypatch.setattr(Actions, "is_refused", lambda *_: False)
    before = _contents(tmp_path)
    app = make_app(read_only=True)
    met: dict[str, str] = {}
    async with running(app, (80, 24)) as (_, pilot):
        async for screen in _screens(pilot, filled):
            met |= await _do_all(pilot, folder, but=met)
            if isinstance(screen, RunsScreen):  # on the live one, which alone can be cancelled
                keys = [row.key for row in screen.table.page.rows]
                screen.table.grid.point(keys.index(str(filled - 1)))
                await settled(pilot)
                met |= await _do_all(pilot, folder, only="runs.cancel")
    assert written == []
    assert {name for name, problem in met.items() if REFUSED in problem} == WRITING
    assert _contents(tmp_path) == before
    for target in (*(place.target for place in PLACES), *PAGES):  # also of screens that are new
        for action in resolve_name(target).ACTIONS:
            assert action.id in met or _leaves(action), action.id


async def test_what_is_written_is_seen(make_app, filled, folder, written):
    """Without --read-only the same way of doing an action does write, and is told of it."""
    async with running(make_app(), (80, 24)) as (_, pilot):
        for mode, name in (
            ("data", "data.export-dataset"), ("data", "table.export"), ("home", "app.theme"),
            ("models", "models.export-model"), ("models", "models.tag"), ("runs", "runs.note"),
            ("runs", "runs.columns"),
        ):  # fmt: skip
            await _go(pilot, mode)
            assert written == []
            assert await _do_all(pilot, folder, only=name) == {name: ""}
            assert written, name
            written.clear()


async def test_what_would_be_refused_is_not_offered(make_app, filled):
    """Neither by a key, nor in the palette, nor by a button."""
    app = make_app(read_only=True)
    seen: set[str] = set()

    def look(screen: Any) -> None:
        writing = {a.id: a for _, a in _actions(screen) if a.id in WRITING}
        seen.update(writing)
        offered = {active.binding.id for active in screen.active_bindings.values()}
        assert not offered & writing.keys()
        labels = [command.title for command in app.get_system_commands(screen)]
        assert not {a.label for a in writing.values()} & set(labels) - _HARMLESS
        for button in screen.query(Button):
            where, _, action = str(button.action).partition(".")
            assert not (app if where == "app" else screen).is_refused(action)

    async with running(app, (80, 24)) as (_, pilot):
        async for screen in _screens(pilot, filled):
            look(screen)
    assert seen == WRITING


async def test_what_cannot_be_done_with_a_model_is_not_offered(make_app, store, tmp_path, folder):
    store.import_table(TIMINGS, key="x", spec={})
    register_model(tmp_path / "made", "other")
    offered: dict[str, list[str]] = {}

    def look(app: DiodeApp) -> None:
        screen: Any = app.screen
        names = ("promote", "rollback", "delete")
        offered[screen.entry.model.reference] = [n for n in names if screen.check_action(n, ())]

    async with running(make_app(), (120, 40), "M") as (app, _):
        look(app)
    assert offered == {"other@1": ["promote", "delete"]}  # no promotion can be undone
    register_model(tmp_path / "made", "plain", default=True)
    async with running(make_app(), (120, 40), "M") as (app, pilot):
        look(app)
        await pilot.press("down")
        await settled(pilot)
        look(app)
    assert offered == {
        "plain@1": ["rollback", "delete"], "other@1": ["promote", "rollback", "delete"],
    }  # fmt: skip


async def test_a_store_of_an_older_schema_stays_one(make_app, path, tmp_path, written):
    """The details of the store come from a command, which would update it."""
    path.write_bytes(zstandard.decompress(EARLIER.read_bytes()))
    before = _contents(tmp_path)
    written.clear()
    async with running(make_app(read_only=True), (80, 24)) as (app, pilot):
        assert "The store is of an older schema" in text_of(app)
        app.screen.action_stats()  # which is not offered
        (problem,) = await _answered(pilot, tmp_path)
        assert "is of an older schema" in problem
    assert written == []
    assert _contents(tmp_path) == before
