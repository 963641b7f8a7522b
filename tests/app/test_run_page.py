"""A run's page over real runs: a scripted job that is cancelled and repeated, a real training."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

from textual.widgets import Log

from diode_app.data import background
from diode_app.widgets.modals import Confirm
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.progress import GpuProgress
from diode_engine.runs import start
from diode_engine.runs.process import current_process, is_alive
from diode_engine.store import RunState
from tests.app.waiting import looked, press, running, say_yes, settled, text_of, toasts, until_shown
from tests.runs.conftest import wait_for_end

PYTHON = sys.executable  # which the fixture job replaces


async def test_a_program_ends_with_its_caller_where_it_is_told_to(tmp_path):
    program = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}'); time.sleep(60)"
    path = tmp_path / "process"
    asked = asyncio.create_task(background.run_python("-c", program, str(path), outlives=False))
    while not (path.exists() and path.read_text()):
        await asyncio.sleep(0.01)
    asked.cancel()
    async with asyncio.timeout(10):
        while Path(f"/proc/{path.read_text()}").exists():
            await asyncio.sleep(0.01)
    assert asked.cancelled()


async def test_a_run_is_watched_cancelled_and_done_again(make_app, store, job, monkeypatch):
    monkeypatch.setattr(background, "sys", SimpleNamespace(executable=PYTHON))
    run = start(store, "collect", {"gpu": [0]})
    assert job.hear() == f"begun {run.id}"
    async with running(make_app(), (120, 40), "R", "enter") as (app, pilot):
        assert "▶ running" in text_of(app)
        assert "$ diode-engine collect --gpu=0" in text_of(app)
        job.tell("say")
        assert job.hear() == "did say"
        await pilot.press("2")
        await looked(pilot)
        assert "from the job" in text_of(app)

        await press(pilot, "c")
        assert isinstance(app.screen, Confirm)
        await press(pilot, "n")
        assert store.run(run.id).cancel_asked is None
        await press(pilot, "c")
        await pilot.press("y")
        while store.run(run.id).cancel_asked is None:
            await pilot.pause()
        app.look_at_store()
        await until_shown(pilot, "cancelling")
        job.tell("check")
        await settled(pilot)
        assert store.run(run.id).state is RunState.CANCELLED
        await looked(pilot)
        assert "■ cancelled" in text_of(app)
        (toast,) = toasts(app)
        assert toast.startswith(f"Run {run.id}, collect: ■ cancelled after")

        await pilot.press("c")  # which is not offered of a run that has ended
        await settled(pilot)
        assert not app.screen.is_modal
        assert "c Cancel" not in text_of(app)

        await pilot.press("r")
        await say_yes(pilot)
        await settled(pilot)
        again = store.run(run.id + 1)
        assert again.resumes == run.id
        assert app.screen.run == again.id
        assert toasts(app)[-1] == f"Run {again.id} continues run {run.id}."
        assert job.hear() == f"begun {again.id}"
    # The dashboard has gone; the run has not.
    again = store.run(again.id)
    assert is_alive(again.process)
    job.tell("end")
    wait_for_end(again.process)
    assert store.run(again.id).state is RunState.DONE


async def test_a_cluster_s_gpus_are_shown_by_machine(make_app, store):
    gpu = {"name": "NVIDIA H200", "timings": 700, "temperature_c": 41, "held_back": []}
    gpus = {
        "0": {**gpu, "node": "anna"}, "1": {**gpu, "node": "anna", "temperature_c": 63},
        "2": {**gpu, "node": "bert", "held_back": ["hw_slowdown"]},
    }  # fmt: skip
    run = store.start_run("collect", {}, process=current_process())
    store.update_run(run, progress={"timings": 2100, "gpus": gpus})
    async with running(make_app(), (160, 50), "R", "enter") as (app, _pilot):
        shown = text_of(app)
    assert "anna, 2 GPUs" in shown
    assert "1,400 timings" in shown
    assert "63 °C" in shown
    assert "bert, 1 GPU" in shown
    assert "held back: hw_slowdown" in shown


async def test_a_cluster_s_fits_are_shown_by_machine(make_app, store):
    run = store.start_run("validate", {}, process=current_process())
    nodes = {"anna": "2 fits; trees-0, fold 1 of 5: 7 of 90", "bert": "1 fit; network-1: 3 of 80"}
    store.update_run(run, progress={"fraction": 0.4, "nodes": nodes})
    async with running(make_app(), (160, 50), "R", "enter") as (app, pilot):
        await press(pilot, "3")
        shown = text_of(app)
    for name, said in nodes.items():
        assert f"on {name}" in shown
        assert said in shown


MACHINE = {
    "cores": 16, "cpu": 42.0, "cpu_machine": 77.0, "cpu_seconds": 200.0, "memory_bytes": 3 << 30,
    "memory_machine_bytes": 12 << 30, "memory_total_bytes": 64 << 30, "processes": 9,
    "threads": 57, "load": 6.5,
    "peak": {"cpu": 91.0, "memory_bytes": 5 << 30, "processes": 12, "threads": 80},
    "samples": [[0, None, None, 1.1, 9.0], *([2.0 * i, 40 + i, 70, 3.1, 9.5] for i in range(1, 9))],
}  # fmt: skip


async def test_the_machine_is_shown_while_a_run_works_and_afterwards(make_app, store):
    run = store.start_run("validate", {}, process=current_process())
    store.update_run(run, progress={"fraction": 0.4, "machine": MACHINE})
    async with running(make_app(), (200, 50), "R", "enter") as (app, pilot):
        shown = text_of(app)
        assert "run 42 % of 16 cores · 3.0 GiB (peak 5.0 GiB)" in shown
        assert "machine 77 %, 12.0 GiB of 64.0 GiB, load 6.5" in shown
        assert "9 processes, 57 threads · 3 min 20 s of CPU time" in shown
        for words in ("CPU, % of all cores", "memory in use, GB", "the run", "the machine"):
            assert words in shown
        store.finish_run(run, "done")
        await looked(pilot)
        assert "at most 91 % of 16 cores · 5.0 GiB · 12 processes, 80 threads" in text_of(app)
        assert "load 6.5" not in text_of(app)
        assert "CPU, % of all cores" in text_of(app)


async def test_a_training_s_own_curves_come_before_the_machine_s(make_app, store):
    run = store.start_run("train", {}, process=current_process())
    store.update_run(run, progress={"machine": MACHINE})
    async with running(make_app(), (120, 40), "R", "enter") as (app, pilot):
        assert "CPU, % of all cores" in text_of(app)
        store.add_points(run, "trees/efficiency", [(step, 0.5 + step / 20) for step in range(10)])
        await looked(pilot)
        assert "efficiency on problems" in text_of(app)
        assert "CPU, % of all cores" not in text_of(app)
        await press(pilot, "v")
        assert "CPU, % of all cores" in text_of(app)


async def test_a_training_s_gpu_is_shown_and_drawn(make_app, store):
    """It has no timings."""
    gpu = GpuProgress()
    for second in range(9):
        gpu.add(second, GpuState(1980, 41, 345, (), 90 + second, 2_415_919_104))
    run = store.start_run("train", {}, process=current_process())
    store.update_run(run, progress={"machine": MACHINE, "gpus": {"0": gpu.to_dict()}})
    async with running(make_app(), (120, 40), "R", "enter") as (app, pilot):
        assert "98 % busy 1980 MHz 345 W 2.2 GiB" in text_of(app)
        assert "0 timings" not in text_of(app)
        assert "timings a second" not in text_of(app)
        assert "utilisation, %" in text_of(app)
        await press(pilot, *"vvvvv")
        assert "held back" in text_of(app)


async def test_a_machine_that_is_not_known_is_said_and_an_old_run_has_none(make_app, store):
    run = store.start_run("train", {}, process=current_process())
    store.update_run(run, progress={"fraction": 0.4})
    async with running(make_app(), (120, 40), "R", "enter") as (app, pilot):
        assert not app.screen.query("#run-gauges Meter")
        assert "No curves yet" in text_of(app)
        store.update_run(run, progress={"fraction": 0.4, "machine": None})
        await looked(pilot)
        assert "not known: this system has no /proc" in text_of(app)


async def test_curves_of_one_kind_share_an_axis(make_app, store):
    run = store.start_run("train", {}, process=current_process())
    for name in ("trees/efficiency", "network/efficiency", "network/loss"):
        store.add_points(run, name, [(step, 0.5 + step / 20) for step in range(10)])
    async with running(make_app(), (120, 40), "R", "enter") as (app, pilot):
        assert "trees" in text_of(app)
        assert "network" in text_of(app)
        assert "loss" not in text_of(app)
        await press(pilot, "v")
        assert "loss" in text_of(app)
        assert "trees" not in text_of(app)
        store.add_points(run, "network/loss", [(10, float("nan")), (11, -1.0)])
        await pilot.press("l")  # nothing at or below zero, nothing that is not a number
        await looked(pilot)
        assert "loss" in text_of(app)


async def test_a_log_is_followed_and_searched(make_app, store, tmp_path):
    run = store.queue_run("train", {}, command=["diode-engine", "train"], directory="/",
                          logs=tmp_path)  # fmt: skip
    store.begin_run(run.id, {}, process=current_process())
    log = tmp_path / f"run-{run.id}.log"
    log.write_text("one step\nan error\n")
    async with running(make_app(), (120, 40), "R", "enter") as (app, pilot):
        await press(pilot, "2")
        app.screen.query_one(Log).focus()
        assert "an error" in text_of(app)
        with log.open("a") as file:
            file.write("two steps\n")
        await looked(pilot)
        assert "two steps" in text_of(app)
        # Who has scrolled up stays there.
        with log.open("a") as file:
            file.write("more\n" * 60)
        await looked(pilot)
        assert "one step" not in text_of(app)
        await press(pilot, "g")
        with log.open("a") as file:
            file.write("the end\n")
        await looked(pilot)
        assert "one step" in text_of(app)
        await press(pilot, "G")
        assert "the end" in text_of(app)
        await press(pilot, "slash", *"ERR", "enter")
        assert "an error" in text_of(app)
        assert "two steps" not in text_of(app)
