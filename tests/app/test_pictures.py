"""Pictures of every page at its usual size, and of those that look otherwise in a small or a large
terminal there too (the largest as text). What a person should see is judged by a person: after a
change, look at the new ones (`--snapshot-update`, then the diff)."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
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
from textual.widgets import Select

from diode_app import text
from diode_app.app import DiodeApp, create_app
from diode_app.data.overview import overview
from diode_app.screens import help as help_screen
from diode_app.screens import home
from diode_app.widgets.bars import TopBar
from diode_engine import paths, registry
from diode_engine.collect.planning.plan import Rate
from diode_engine.models import artifact
from diode_engine.problems.sources import write_shapeset
from diode_engine.registry import facts
from diode_engine.reports import record
from diode_engine.runs import Status
from diode_engine.runs.process import current_process
from diode_engine.store import Store
from diode_engine.validation import choosers
from tests.app.judged import judge
from tests.app.registered import register_model
from tests.app.trained import make_training
from tests.app.waiting import lines_of, press, put, running
from tests.training.conftest import make_timings

REPORTED = Path(__file__).parents[1] / "reports" / "program.json"
SMALL, USUAL, LARGE = (80, 24), (120, 40), (200, 50)
AS_TEXT = LARGE  # a tenth as large as in colours
Step = tuple[str, tuple[tuple[int, int], ...], str]  # a picture, its sizes, and the keys before it
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
REFUSED = {
    "model": "stages@1", "against": "plain@1", "promoted": False,
    "checks": [
        {"name": "loads", "passed": True, "found": "Its files are whole."},
        {"name": "efficiency", "passed": False, "found": "Its efficiency is 0.7, that of plain@1 "
         "0.8 (10th percentile 0.6)."},
    ],
}  # fmt: skip


MODEL = (
    ("model", "gemm@1 (shipped)"),
    ("made for", "NVIDIA H200"),
    ("of the best", "0.972 on 217 problems"),
    ("beside", "ATen 0.882, max-autotune DEFAULT 0.979"),
    ("trained on", "90,235 timings of 1,084 problems"),
)


class _TextExtension(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    _file_extension = "txt"


sizes = pytest.mark.parametrize("size", [SMALL, USUAL, LARGE], ids=lambda s: f"{s[0]}x{s[1]}")


@pytest.fixture
def pictures(snapshot, size):
    return snapshot.use_extension(_TextExtension if size == AS_TEXT else SVGImageExtension)


def picture_of(app: DiodeApp, size: tuple[int, int]) -> str:
    """What is on the screen, for `pictures`."""
    if size != AS_TEXT:
        return app.export_screenshot(simplify=True)
    return "\n".join([*(line.rstrip() for line in lines_of(app)), ""])


async def compare(pictures: SnapshotAssertion, size: tuple[int, int], steps: list[Step]) -> None:
    """Goes through the steps in a dashboard, up to the last one with a picture of this size."""
    while steps and size not in steps[-1][1]:
        steps = steps[:-1]
    app = create_app(Path("diode.db"), settings_path=Path("dashboard.toml"), poll_seconds=3600)
    changed = []
    async with running(app, size) as (_, pilot):
        for name, kept, keys in steps:
            for key in keys.split():
                await press(pilot, key)
            if name == "ask-two":
                folder = registry.resolve("stages@1").folder
                await put(pilot, app.screen.query_one("#ask-other", Select), str(folder))
            if size in kept:
                picture = ""
                while picture != (picture := picture_of(app, size)):  # plots are laid out twice
                    await pilot.pause()
                changed += [name] if picture != pictures(name=name) else []
    assert changed == []


@pytest.fixture(autouse=True)
def fixed(tmp_path, monkeypatch):
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
    monkeypatch.setattr("diode_app.screens.sql.time", SimpleNamespace(monotonic=lambda: 0.0))
    rate = Rate(30.0, "the last collection in the store")
    monkeypatch.setattr("diode_app.data.collection.expected_rate", lambda *_, **__: rate)
    monkeypatch.setattr(home, "model_in_use", lambda _: MODEL)
    monkeypatch.setattr(home, "overview", lambda store: replace(overview(store), schema="0004"))
    monkeypatch.setattr(paths, "shipped_dir", lambda: Path("diode"))
    clock = SimpleNamespace(datetime=SimpleNamespace(now=lambda _: NOW), UTC=dt.UTC)
    monkeypatch.setattr(artifact, "dt", clock)
    monkeypatch.setattr(facts, "dt", clock)
    monkeypatch.setattr(artifact, "__version__", "0.1.0")
    monkeypatch.setattr(choosers, "nv_matmul_heuristics", lambda _: (None, ()))

    async def run_command(_: object) -> str:
        return json.dumps(REFUSED)

    monkeypatch.setattr("diode_app.data.store_access.run_command", run_command)


def fix_times(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE runs SET started = 1.79e9 + 600 * id")


def fill_runs(path: Path) -> None:
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
            "gpus": {str(number): {**gpu, "temperature_c": heat, "samples": [
                [20.0 * i, 1980, heat - 40 / (1 + i), 400, 97, 2.4, 30 + 9 * (i % 3), 0]
                for i in range(30)
            ]} for number, heat in enumerate((71, 88))},
        })  # fmt: skip
    fix_times(path)


def fill_programs() -> None:
    """The report of a real lowering, whose choices another model makes, and captured products."""
    file = Path("data/reports/20261124-132724-1.json")
    file.parent.mkdir(parents=True)
    report = record.read(REPORTED)
    unasked = {"kernel": None, "why": "", "predicted_us": None, "library_us": None,
               "confidence": None, "outcome": record.Outcome.PREDICTED}  # fmt: skip
    products = tuple(
        replace(p, **(unasked if p.problem and p.problem.op == "mm" else {}))
        for p in report.products
    )
    record.write(replace(report, model="plain@1", products=products), file)
    write_shapeset(make_timings(3).problems, Path("captured.json"), "captured from a test")
    os.utime("captured.json", (NOW.timestamp(), NOW.timestamp()))
    register_model(Path("made"), "plain", sure=True, default=True)
    Store.open(Path("diode.db")).close()


def fill_models(path: Path) -> None:
    """Two models, each judged; one is the default."""
    stages = register_model(Path("made"), "stages", stage=0.1)
    plain = register_model(Path("made"), "plain", sure=True)
    registry.set_default(plain, reason="the first")
    registry.set_verdict(plain, registry.ModelStatus.VALIDATED, {**REFUSED, "passed": True})
    registry.tag(stages, ["night"])
    with Store.open(path) as store:
        store.import_table(make_timings(80), key="x", spec={"file": "gemm.msgpack.zst"})
        for model in (stages, plain):
            judge(store, model)
    fix_times(path)


def fill_trainings(path: Path) -> None:
    """Two trainings that are over, one of them pinned, one at work, and a collection."""
    with Store.open(path) as store:
        store.import_table(make_timings(60), key="x", spec={"file": "gemm.msgpack.zst"})
        make_training(store, "trees", 0.941, {"seed": 1}, trees=0.3)
        make_training(store, "ensemble", 0.972, {"seed": 2}, trees=0.2, network=0.4)
        store.tag(2, "diode/baseline")
        run = store.start_run(
            "train", {"family": "network"}, process=current_process(), directory="diode",
            command=["diode-engine", "train", "--family=network"],
        )  # fmt: skip
        store.add_points(run, "network-0/efficiency", [(i, 1 - 0.4 / i) for i in range(1, 13)])
        store.update_run(run, progress={"member": "network-0", "step": 12, "steps": 40,
                                        "log_rmse": 0.2, "efficiency": 0.9434})  # fmt: skip
        command = ["diode-engine", "collect", "--problems=300", "--gpu=0"]
        run = store.start_run(
            "collect", {"gpu": [0]}, process=current_process(), command=command, directory="diode"
        )
        samples = [[30 * i, 1980 - 5 * i, 35 + 20 * (1 - math.exp(-i / 9)), 120 + 9 * i]
                   for i in range(40)]  # fmt: skip
        store.update_run(run, progress={
            "problems": 300, "problems_done": 81, "problems_refused": 2, "candidates": 27000,
            "timings": 7300, "failures": {"out of resources": 412, "timeout": 3}, "rate": 61.0,
            "seconds_left": 323.0, "workers_lost": 1,
            "gpus": {"0": {"name": "NVIDIA H200", "timings": 7300, "clock_mhz": 1785,
                           "temperature_c": 54, "power_w": 471.0, "held_back": [],
                           "samples": samples}},
        })  # fmt: skip
    fix_times(path)


U, S, L = (USUAL,), (USUAL, SMALL), (USUAL, LARGE)


@sizes
async def test_no_store(pictures, size):
    await compare(pictures, size, [("no-store", U, "")])


@sizes
async def test_empty(pictures, size):
    Store.open(Path("diode.db")).close()
    await compare(pictures, size, [("home", S, ""), ("validate", U, "V")])


@sizes
async def test_runs(pictures, size):
    fill_runs(Path("diode.db"))
    await compare(pictures, size, [
        ("collect", U, "C"), ("train", S, "T"), ("settings", U, "S"), ("data", U, "D"),
        ("runs", S, "R"), ("run", U, "enter"), ("help", U, "escape question_mark"),
    ])  # fmt: skip


@sizes
async def test_problems(pictures, size):
    fill_runs(Path("diode.db"))
    register_model(Path("made"), "stages", stage=0.3)
    register_model(Path("made"), "plain", sure=True, default=True)
    await compare(pictures, size, [
        ("problem", S, "D down enter"), ("candidate", S, "down enter"),
        ("ask", S, "escape escape down down w"),
        ("ask-two", U, "down"), ("sql", U, "Q ctrl+g"),
    ])  # fmt: skip


@sizes
async def test_programs(pictures, size):
    fill_programs()
    await compare(pictures, size, [
        ("programs", S, "P"), ("program", (SMALL, USUAL, LARGE), "enter down down"),
        ("program-why", (SMALL,), "w"),
    ])  # fmt: skip


@sizes
async def test_models(pictures, size):
    fill_models(Path("diode.db"))
    await compare(pictures, size, [
        ("home", (LARGE,), ""), ("figures", L, "V"), ("curves", U, "2"), ("worst", U, "4"),
        ("models", U, "M"), ("refused", U, "down p"), ("model", U, "n up enter"),
        ("comparison", U, "escape c enter"),
    ])  # fmt: skip


@sizes
async def test_trainings(pictures, size):
    fill_trainings(Path("diode.db"))
    await compare(pictures, size, [
        ("trainings", L, "R slash k i n d : t r a i n enter down space"),
        ("compared", U, "up v"), ("at-work", U, "escape enter"),
        ("collection", U, "escape escape g enter"),
    ])  # fmt: skip
