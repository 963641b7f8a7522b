"""Trainings in a store, as if they had been made, and what a plot shows of them."""

from __future__ import annotations

from typing import Any

from diode_app.app import DiodeApp
from diode_app.widgets.plot import Plot
from diode_engine.runs.process import current_process
from diode_engine.store import RunState, Store


def make_training(
    store: Store,
    family: str,
    efficiency: float,
    spec: dict[str, Any] | None = None,
    **members: float,
) -> int:
    """A training that is done; each member has a curve of this slope."""
    run = store.start_run("train", {"family": family, **(spec or {})}, process=current_process())
    for name, slope in members.items():
        points = [(step, 1 - slope / step) for step in range(1, 12)]
        store.add_points(run, f"{name}/efficiency", points)
        store.add_points(run, f"{name}/objective", [(x, 1 - y) for x, y in points])
    metrics = {"efficiency": efficiency, "efficiency_p10": 0.8, "efficiency_worst": 0.5}
    store.set_result(run, {
        "model": f"{family}@1", "folder": family, "family": family, "hardware": "NVIDIA H200",
        "metrics": metrics, "held_out_problems": 8, "problems": 32, "timings": 900, "seconds": 2,
    })  # fmt: skip
    store.finish_run(run, RunState.DONE)
    return run


def drawn(app: DiodeApp) -> list[str]:
    """The names of the curves, chart by chart."""
    return [line.name for chart in app.screen.query_one(Plot).charts for line in chart.lines]
