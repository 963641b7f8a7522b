"""Pictures of every screen, in three sizes, with and without data: in colours (SVG), the largest as
text. What a person should see is judged by a person: after a change, look at the new ones
(`--snapshot-update`, then the diff)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytest_textual_snapshot import SVGImageExtension
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.content import Content

from diode_app import text
from diode_app.app import DiodeApp, create_app
from diode_app.data.overview import ModelInUse, overview
from diode_app.screens import about, home
from diode_app.screens import help as help_screen
from diode_app.screens.places import PLACES
from diode_app.widgets.top_bar import TopBar
from diode_engine import paths
from diode_engine.collect.planning.plan import Rate
from diode_engine.runs import Status
from diode_engine.runs.process import current_process
from diode_engine.store import Store
from tests.app.waiting import settled, started
from tests.training.conftest import make_timings

pytestmark = pytest.mark.asyncio
SIZES = ((80, 24), (120, 40), (200, 50))
AS_TEXT = (200, 50)  # a tenth as large
MODEL = ModelInUse(
    reference="gemm@1", shipped=True, trained_on="NVIDIA H200", likeness=1.0, efficiency=0.972,
    problems=217, data_problems=1084, data_timings=90235, created="2026-11-21",
    others={"ATen": 0.882, "max-autotune DEFAULT": 0.979},
)  # fmt: skip


class _TextExtension(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    _file_extension = "txt"


@pytest.fixture
def pictures(snapshot: SnapshotAssertion, size: tuple[int, int]) -> SnapshotAssertion:
    return snapshot.use_extension(_TextExtension if size == AS_TEXT else SVGImageExtension)


def picture_of(app: DiodeApp, size: tuple[int, int]) -> str:
    """What is on the screen, for `pictures`."""
    if size != AS_TEXT:
        return app.export_screenshot(simplify=True)
    strips = app.screen._compositor.render_strips()
    lines = ("".join(segment.text for segment in strip).rstrip() for strip in strips)
    return "\n".join([*lines, ""])


@pytest.fixture(autouse=True)
def fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times, paths, versions and figures are the same on every machine at any time, and a picture
    of one screen does not change with another screen."""
    monkeypatch.setattr(TopBar, "_navigation", lambda _: Content(" (the places)"))
    monkeypatch.setattr(help_screen, "sections", list)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIODE_HOME", "data")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setattr(Status, "seconds", property(lambda _: 83.0))
    monkeypatch.setattr(Status, "quiet_seconds", property(lambda _: 1.0))
    monkeypatch.setattr(text, "size", lambda _: "5.1 MiB")
    rate = Rate(30.0, "the last collection in the store")
    monkeypatch.setattr("diode_engine.cli.collect.expected_rate", lambda *_, **__: rate)
    monkeypatch.setattr(home, "model_in_use", lambda _: MODEL)
    monkeypatch.setattr(home, "overview", lambda store: replace(overview(store), schema="0004"))
    monkeypatch.setattr(paths, "shipped_dir", lambda: Path("diode"))
    monkeypatch.setattr(about, "_version", lambda _: "1.2.3")
    monkeypatch.setattr(about, "__version__", "0.1.0")
    platform = SimpleNamespace(python_version=lambda: "3.12.0", platform=lambda: "Linux")
    monkeypatch.setattr(about, "platform", platform)
    monkeypatch.setattr(about, "sys", SimpleNamespace(executable="python"))


def fill(path: Path) -> None:
    """Timings, and a run in each state."""
    gpu = {"name": "NVIDIA H200", "timings": 9, "clock_mhz": 1980, "temperature_c": 61,
           "power_w": 402.5, "held_back": ["power cap"]}  # fmt: skip
    with Store.open(path) as store:
        store.import_table(make_timings(40), key="x", spec={"file": "gemm.msgpack.zst"})
        command = ["diode-engine", "train", "--family=trees", f"--store={path}"]
        for kind, state, message in (
            ("train", "done", "registered as trees@1"),
            ("train", "failed", "Of 40 problems with timings 1 is held out, which is too few."),
            ("validate", "cancelled", "stopped by the user"),
            ("collect", None, None),
        ):
            run = store.start_run(
                kind, {"family": "trees"} if kind == "train" else {"gpu": [0, 1]},
                process=current_process(), command=command, directory="diode",
            )  # fmt: skip
            if state is not None:
                store.finish_run(run, state, message)
        store.tag(2, "night", "best")
        store.set_note(2, "the baseline")
        store.update_run(run, progress={
            "problems": 300, "problems_done": 81, "candidates": 27000, "timings": 7300,
            "failures": {"out of resources": 412}, "rate": 61.0, "seconds_left": 323.0,
            "gpus": {"0": gpu, "1": {**gpu, "temperature_c": 88}},
        })  # fmt: skip
        for name, slope in (("trees/efficiency", 0.03), ("network/efficiency", 0.02)):
            store.add_points(run, name, [(s, 1 - 0.4 / (1 + slope * s * s)) for s in range(30)])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE runs SET started = 1.79e9 + 600 * id")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("state", ["empty", "filled"])
async def test_screens(pictures: SnapshotAssertion, size, state):
    path = Path("diode.db")
    if state == "filled":
        fill(path)
    else:
        Store.open(path).close()
    app = create_app(path, settings_path=Path("dashboard.toml"), poll_seconds=3600)
    changed = []

    def look(name: str) -> None:
        if picture_of(app, size) != pictures(name=name):
            changed.append(name)

    async with app.run_test(size=size) as pilot:
        await started(pilot)
        for place in PLACES:
            if state == "filled" or place.load().NEEDS_STORE:
                await pilot.press(place.key)
                await settled(pilot)
                look(place.mode)
        if state == "filled":
            await pilot.press("R")
            await settled(pilot)
            await pilot.press("enter")
            await settled(pilot)
            look("run")
            await pilot.press("y")
            await settled(pilot)
            look("commands")
            await pilot.press("escape", "escape", "question_mark")
            await settled(pilot)
            look("help")
    assert changed == []


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_no_store(pictures: SnapshotAssertion, size):
    app = create_app(
        Path("diode.db"), settings_path=Path("dashboard.toml"), poll_seconds=3600,
        theme="okabe-ito-light",
    )  # fmt: skip
    async with app.run_test(size=size) as pilot:
        await started(pilot)
        assert picture_of(app, size) == pictures(name="home")
        await pilot.press("O")
        await settled(pilot)
        assert picture_of(app, size) == pictures(name="tour")
