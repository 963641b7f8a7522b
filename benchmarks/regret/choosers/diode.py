"""Diode's models. ARGUMENT: a model's folder, of what ships where there is none; behind a comma
"order" for the model's own order, without the margins by which a compile prefers the library's
kernel."""

from __future__ import annotations

from pathlib import Path

from diode_records import Choose, of_records

from diode_engine.choosing.policy import Policy
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.models.predictor import Predictor
from diode_engine.registry import load_predictor


def chooser(argument: str) -> Choose:
    place, _, how = argument.partition(",")
    model = Predictor.load(Path(place)) if place else load_predictor(H200)

    def choose(problem: Problem, candidates: list[Candidate]) -> list[int]:
        prediction = model.predict(problem, candidates)
        order: list[int] = prediction.order.tolist()
        if not order or how == "order":
            return order
        (first,), _ = Policy().compare(prediction).choose()
        return [first, *(i for i in order if i != first)]

    name = "@".join(Path(place).parts[-2:]) if place else "what ships"
    return of_records(choose, f"Diode {name}{', its own order' if how else ', as a compile'}")
