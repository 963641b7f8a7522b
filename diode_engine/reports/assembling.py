"""Makes a program's report from the notes that its processes wrote (see
inductor.hook.product_notes), and predicts what Diode would choose where the program did not ask
it."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

from diode_engine import registry
from diode_engine.choosing.chooser import Chooser
from diode_engine.choosing.fingerprint import Fingerprint
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Hardware
from diode_engine.core.operand import Bias
from diode_engine.core.problem import Problem
from diode_engine.errors import DiodeError
from diode_engine.inductor.hook.product_notes import fields_of
from diode_engine.models.predictor import Predictor
from diode_engine.problems.predicted_choice import choose_offered
from diode_engine.problems.spaces import space_size
from diode_engine.registry import ModelVersion
from diode_engine.reports.record import Graph, Outcome, Place, Product, Report
from diode_engine.version import __version__, torch_version, triton_version

Notes = Sequence[Mapping[str, Any]]  # of one process, in order

NOT_ASKED = "Inductor lowers it without asking Diode"
_PLACE = ("module", "kind", "file", "line", "code")
_PREDICTIONS = ("predicted_us", "library_us", "confidence")


class ProgramChooser:
    """Predicts choices for one GPU: the given one, else that of the notes of what chooses, else an
    H200. The model is that of the notes, else the one that the GPU takes."""

    def __init__(self, said: Sequence[Mapping[str, Any]], hardware: Hardware | None) -> None:
        there = next((Hardware.from_dict(s["hardware"]) for s in said if "hardware" in s), None)
        self.is_assumed = hardware is None and there is None
        self.hardware = hardware or there or H200
        identity = next((s["model"] for s in said if "model" in s), "")
        self.model = find_model(identity) if identity else None
        # The name of the model that chose in the program, else of the one that predicts.
        self.model_name = identity
        if self.model is None and (match := registry.best_for(self.hardware)) is not None:
            self.model = match.model
        if self.model is not None and (not identity or self.model.manifest.identity == identity):
            self.model_name = self.model.reference

    @cached_property
    def _chooser(self) -> Chooser | None:
        if self.model is None:
            return None
        return Chooser(Predictor.load(self.model.folder, self.hardware), self.hardware)

    @cache  # noqa: B019  # as long as the report is made
    def predict(self, problem: Problem) -> Mapping[str, Any] | str:
        """Return what Diode would choose, as a note of a choice; a reason where it is nothing."""
        try:
            if self._chooser is None:
                return f"there is no model for {self.hardware.name}"
            _, choice = choose_offered(problem, self._chooser, torch_version() or "")
        except DiodeError as error:
            return str(error)
        return fields_of(choice)


def find_model(identity: str) -> ModelVersion | None:
    """Return the registry's model with this identity; None where there is none."""
    for model in registry.list_models():
        with contextlib.suppress(DiodeError):  # it cannot be read
            if model.manifest.identity == identity:
                return model
    return None


@dataclass
class Lowered:
    """One product of a graph: its notes, and that of what chooses in its process."""

    graph: tuple[int, int]  # the process, and the graph's number there
    product: Mapping[str, Any]
    diode: Mapping[str, Any]
    choice: Mapping[str, Any] | None = None
    left: str = ""


def assemble(
    processes: Sequence[Notes],
    program: str,
    *,
    hardware: Hardware | None = None,
    exit_code: int | None = None,
) -> Report:
    """Return the report of a program whose processes took these notes. `hardware` is the GPU to
    choose for, None the program's."""
    processes = [each for each in processes if any("at" in n or "cached" in n for n in each)]
    noted = [note for each in processes for note in each]
    said = [note["diode"] for note in noted if "diode" in note]
    chooser = ProgramChooser(said, hardware)
    lowered = join_notes(processes)
    places: dict[Product, Counter[Place]] = {}
    graphs = _graphs(lowered, processes)
    numbers = {at: number for number, at in enumerate(graphs)}
    for each in lowered:
        place = Place(**{name: each.product[name] for name in _PLACE})
        product = _product(each, numbers[each.graph], chooser)
        places.setdefault(product, Counter())[place] += 1
    cached = sum(note.get("cached", 0) for note in noted)
    return Report(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        program=program,
        exit_code=exit_code,
        diode=__version__,
        torch=next((n["inductor"] for n in noted if "inductor" in n), torch_version() or ""),
        triton=triton_version() or "",
        hardware=chooser.hardware.name,
        model=chooser.model_name,
        fingerprint=said[0]["fingerprint"]["key"] if said else "",
        active=any(s["active"] for s in said),
        reason=next((s["reason"] for s in said if s["reason"]), ""),
        processes=len(said),
        cached_graphs=cached,
        notes=(*_remarks(chooser, lowered, cached), *_differences(said)),
        graphs=tuple(graphs.values()),
        products=tuple(
            replace(
                product,
                count=there.total(),
                places=tuple(replace(place, count=count) for place, count in there.items()),
            )
            for product, there in places.items()
        ),
    )


def _graphs(lowered: Sequence[Lowered], processes: Sequence[Notes]) -> dict[tuple[int, int], Graph]:
    """Return the graphs by their process and number, with their runs where these are noted."""
    runs: list[Mapping[Any, int]] = [
        next((note["runs"] for note in reversed(notes) if "runs" in note), {})
        for notes in processes
    ]
    graphs: dict[tuple[int, int], Graph] = {}
    for each in lowered:
        process, number = each.graph
        ran = runs[process].get(number, runs[process].get(str(number)))  # a text where it was JSON
        graph = Graph(each.product["phase"], each.product["mode"], process, ran)
        graphs.setdefault(each.graph, graph)
    return graphs


def join_notes(processes: Sequence[Notes]) -> list[Lowered]:
    """Return the products of all processes, each with the notes about it. An op may ask for kernels
    several times, and be lowered again in the default mode: the first request counts."""
    found: dict[tuple[object, ...], Lowered] = {}
    for process, notes in enumerate(processes):
        diode: Mapping[str, Any] = {}
        for note in notes:
            diode = note.get("diode", diode)
            at = (process, *note.get("at", ()))
            if "product" in note:
                found.setdefault(at, Lowered((process, at[1]), note["product"], diode))
            elif at in found:
                found[at].choice = note.get("choice", found[at].choice)
                found[at].left = note.get("left", found[at].left)
    return list(found.values())


def _product(lowered: Lowered, graph: int, chooser: ProgramChooser) -> Product:
    """Return the product, without its count and places."""
    noted, outcome, found = lowered.product, Outcome.CHOSEN, lowered.choice
    fields = noted["problem"] if found is None else found["problem"]
    problem = None if fields is None else Problem.from_dict(fields)
    left = "" if found else _why_left(lowered, problem)
    if found is None and not left:
        assert problem is not None
        predicted = chooser.predict(problem)
        if isinstance(predicted, str):
            left = predicted
        else:
            outcome, found = Outcome.PREDICTED, predicted
    kernels = [] if found is None else [Candidate.from_dict(k) for k in found["kernels"]]
    size = None if problem is None else space_size(problem, torch_version() or "", default=True)
    name = noted["name"] if problem is None else str(problem)
    return Product(
        graph=graph,
        name=f"{name} with {noted['activation']}" if noted.get("activation") else name,
        problem=problem,
        dynamic=noted["dynamic"],
        count=1,
        places=(),
        outcome=outcome if found else Outcome.LEFT,
        kernel=kernels[0] if kernels else None,
        why=left if found is None else found["why"],
        **numbers_in(found),
        timed=len(kernels) if len(kernels) > 1 else 0,
        candidates=0 if size is None else size.candidates,
    )


def _why_left(lowered: Lowered, problem: Problem | None) -> str:
    """Return why Diode makes no choice for a product; "" where it was not asked."""
    if lowered.left:
        return lowered.left
    if problem is None:
        return "Diode has no such problem"
    noted = lowered.product
    if noted["mode"] == "default" or noted["device"] == "cpu" or not lowered.diode.get("active"):
        return ""
    if problem.bias is Bias.SCALAR:
        return "no kernel was timed with a bias of one element"
    return NOT_ASKED


def numbers_in(choice: Mapping[str, Any] | None) -> dict[str, float | None]:
    """Return the predictions of a noted choice, as the fields that records have for them; None is
    unknown."""
    said = {name: (choice or {}).get(name) for name in _PREDICTIONS}
    return {name: None if x is None or math.isnan(x) else float(x) for name, x in said.items()}


def _remarks(chooser: ProgramChooser, lowered: Sequence[Lowered], cached: int) -> list[str]:
    """Return what a reader has to know of these products."""
    remarks = []
    default = sum(each.product["mode"] == "default" for each in lowered)
    if default:
        remarks.append(
            f"{default} of {len(lowered)} products were compiled in the default mode, in which "
            'Diode is not asked: compile with mode="max-autotune-no-cudagraphs", or with '
            'options={"fast_autotune": True}, to get these kernels.'
        )
    off = [each.diode["reason"] for each in lowered if each.diode and not each.diode["active"]]
    remarks += [f"Diode was off in the program: {why.rstrip('.')}." for why in off[:1]]
    if chooser.is_assumed:
        remarks.append(
            f"Kernels and times are those of an {chooser.hardware.name}; `diode-engine report "
            "--hardware` names another GPU."
        )
    if cached:
        remarks.append(
            f"{cached} graphs came from Inductor's caches: their products were not lowered, and "
            "are not in this report. To see them, set TORCHINDUCTOR_FORCE_DISABLE_CACHES=1."
        )
    return remarks


def _differences(said: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each process that chooses by something else than the first one."""
    prints = [Fingerprint(each["fingerprint"]["parts"]) for each in said]
    return [
        f"Process {number} has another fingerprint than process 0: {different}."
        for number, each in enumerate(prints)
        if (different := each.describe_differences(prints[0]))
    ]
