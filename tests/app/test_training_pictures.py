"""Pictures of what is in front of and behind Collect and Train."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from diode_app.app import create_app
from diode_engine.runs.process import current_process
from diode_engine.store import Store
from tests.app.test_pictures import SIZES, fixed, picture_of, pictures
from tests.app.waiting import settled, started
from tests.training.conftest import make_timings

__all__ = ["fixed", "pictures"]  # fixtures


def fill(path: Path) -> None:
    """Two trainings that are over, one of them pinned, one at work, and a collection."""
    with Store.open(path) as store:
        store.import_table(make_timings(60), key="x", spec={"file": "gemm.msgpack.zst"})
        for family, efficiency, slope in (("trees", 0.941, 2.0), ("ensemble", 0.972, 1.0)):
            run = train(store, family)
            draw(store, run, "trees-0", 60, slope)
            if family == "ensemble":
                draw(store, run, "network-1", 40, slope / 2)
            metrics = {
                "problems": 217, "efficiency": efficiency, "efficiency_p10": 0.913,
                "efficiency_worst": 0.711, "efficiency_top": {"3": 0.989, "5": 0.994},
                "efficiency_of_others": {"max-autotune DEFAULT": 0.979, "ATen": 0.882,
                                         "median candidate": 0.52},
                "log_rmse": 0.131, "calibration_error": 0.021,
                "calibration_error_by_chance": 0.019,
            }  # fmt: skip
            store.set_result(run, {
                "model": f"{family}@1", "folder": "data/models", "family": family,
                "hardware": "NVIDIA H200", "metrics": metrics, "held_out_problems": 217,
                "problems": 867, "timings": 78_000, "seconds": 312.0,
                "left_out": {"NVIDIA H200, torch 2.10.0, Triton 3.5.0": 120},
                "notes": "The metrics are on 217 problems that this model has not seen.",
            })  # fmt: skip
            store.finish_run(run, "done", f"registered as {family}@1")
        store.tag(2, "diode/baseline")
        run = train(store, "network")
        draw(store, run, "network-0", 12, 0.7)
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
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE runs SET started = 1.79e9 + 600 * id")


def train(store: Store, family: str) -> int:
    return store.start_run(
        "train", {"family": family}, process=current_process(), directory="diode",
        command=["diode-engine", "train", f"--family={family}"],
    )  # fmt: skip


def draw(store: Store, run: int, member: str, steps: int, slope: float) -> None:
    for name, end, height in (("efficiency", 0.97, -0.2), ("objective", 0.1, 0.4),
                              ("train_objective", 0.05, 0.4)):  # fmt: skip
        points = [(i + 1, end + height / (1 + i / slope)) for i in range(steps)]
        store.add_points(run, f"{member}/{name}", points)


@pytest.mark.asyncio
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_pages(pictures: SnapshotAssertion, size):
    path = Path("diode.db")
    fill(path)
    app = create_app(path, settings_path=Path("dashboard.toml"), poll_seconds=3600)
    changed = []
    async with app.run_test(size=size) as pilot:
        await started(pilot)

        async def look(name: str, *keys: str) -> None:
            await pilot.press(*keys)
            await settled(pilot)
            if picture_of(app, size) != pictures(name=name):
                changed.append(name)

        await look("home")
        await look("sources", "C", "p", "tab", "tab")
        await look("mistakes", "escape", "down", *"dreams", "down", "down", *"no")
        await look("train", "escape", "T")
        await look("family", "down", "down", "down", "right")
        await look("trainings", "escape", "v", "down", "space")
        await look("compared", "up", "v")
        await look("loss", "v")
        await look("training", "escape", "down", "enter")
        await look("training-curves", "v")
        await look("at-work", "escape", "up", "enter")
        await pilot.press("escape", "l")
        await settled(pilot)
        await look("collection", "g", "enter")
    assert changed == []
