"""Notes each product that this process lowers, where it is in the program, and what Diode chooses
for it. A program's report is made of these notes, and so is its capture. They change nothing in the
compile. Every process writes a file of its own into one folder, with a note on each line.

Each note is a dictionary:

    {"python": path}                          this process is watched
    {"inductor": version}                     it has imported Inductor, of the torch of this version
    {"too_old": version}                      whose Inductor does not say what it lowers
    {"diode": {…}}                            what chooses in it, before its first product
    {"at": […], "product": {…}}               it lowers a product, under this key of a graph's node
    {"at": […], "choice": {…}}                Diode's choice for the product
    {"at": […], "left": reason}               why Diode makes no choice for it
    {"decision": {…}}                         what was decided about a product before it is lowered
    {"runs": {number: count}}                 how often each graph has run, at the end
    {"cached": count}                         graphs that came from Inductor's caches
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from diode_engine.choosing.choice import Choice
from diode_engine.choosing.stats import Profile, begin_profile, end_profile
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.inductor.guard import STOCK, do_nothing, guard
from diode_engine.inductor.hook.fingerprint import read_fingerprint
from diode_engine.inductor.hook.graph_runs import GraphRuns
from diode_engine.inductor.hook.installation import INSTALLATION
from diode_engine.inductor.hook.integration import State
from diode_engine.inductor.on_import import when_imported
from diode_engine.inductor.patches import Function, Patches
from diode_engine.inductor.torch_internals import DEVICE_TYPE
from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import LOWERS_GROUPS, hook_of

FOLDER = "DIODE_REPORT"  # the environment variable that names the folder for the notes

Note = Callable[..., None]  # takes the note's fields

_NUMBERS = "_diode_report"  # an attribute of Inductor's graph: its number, by the notes' id
# A frame of a stack, with its line of code where the source is known.
_FRAME = re.compile(r'File "(.+)", line (\d+), in .*(?:\n(?! +File ") +(.*))?')
_ROOT = re.compile(r"^L\['[^']*'\]\.?|^getattr\(L\['[^']*'\], '|'\)$")


def begin() -> None:
    """Note what this process lowers in the folder that DIODE_REPORT names, if it is set."""
    folder = os.environ.get(FOLDER)
    if folder and Path(folder).is_dir():
        notes = ProductNotes(functools.partial(_write_note, Path(folder)))
        notes.begin()
        atexit.register(notes.note_runs)


def _write_note(folder: Path, **note: Any) -> None:
    """Append a note to this process's file in the folder; nothing where that is impossible."""
    # Opened for each note: a forked process has another number, and so another file.
    with contextlib.suppress(OSError), (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(note) + "\n")


class ProductNotes(Profile):
    """Gives a note of each product that is lowered, and of each choice, to `note`."""

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note
        self._patches = Patches()
        self._numbers = itertools.count()
        self._runs = GraphRuns(self._number_of)
        self._process = 0  # in which it was noted what chooses
        self._open = True

    def begin(self) -> None:
        """Note products from now on."""
        self._note(python=sys.executable)
        begin_profile(self)
        when_imported("torch._inductor.choices", self._attach)

    def end(self) -> None:
        """Note nothing more, and restore Inductor's functions."""
        self._open = False
        end_profile(self)
        self._patches.restore()

    def note_runs(self) -> None:
        """Note how often the graphs have run so far."""
        if self._runs.counts:
            self._note(runs=dict(self._runs.counts))

    @guard("a choice was not noted", stock=do_nothing)
    def take_choice(self, choice: Choice) -> None:
        """Note a choice for the product that is being lowered."""
        self._note_about_it(choice=fields_of(choice))

    @guard("a reason was not noted", stock=do_nothing)
    def take_left(self, why: str) -> None:
        """Note why Diode makes no choice for the product that is being lowered."""
        self._note_about_it(left=why)

    @guard("a decision was not noted", stock=do_nothing)
    def take_decision(self, what: str, problem: Problem, answer: bool) -> None:
        """Note a decision about a product before it is lowered."""
        self._note(decision={"what": what, "problem": problem.to_dict(), "answer": answer})

    @guard("a moved activation was not noted", stock=do_nothing)
    def take_moved(self, activation: str, problem: Problem, choice: Choice) -> None:
        """Note the product that is being lowered, which has the activation in it."""
        place = self._place()
        if place is None:
            return
        self._note_lowered(place, problem, DEVICE_TYPE, activation=activation)
        why = f"{choice.why}; aten::_addmm_activation computes {activation} as well"
        self._note(at=place[0], choice={**fields_of(choice), "why": why})

    def _note_about_it(self, **fields: Any) -> None:
        place = self._place()
        if place is not None:
            self._note(at=place[0], **fields)

    def _attach(self) -> None:
        if not self._open:
            return
        kind: Any = sys.modules["torch._inductor.choices"].InductorChoices
        version = str(sys.modules["torch"].__version__)
        if hook_of(kind) is None:
            self._note(too_old=version)
            return
        self._note(inductor=version)
        # Not the hook itself, which Diode asks whether it is Inductor's own.
        self._patches.guard(
            kind, "get_template_configs", self._note_request, "a product was not noted"
        )
        when_imported("torch._inductor.kernel.mm_grouped", self._attach_grouped)
        when_imported("torch._inductor.output_code", self._attach_runs)

    def _note_request(
        self, choices: Any, kernel_inputs: Any, templates: Any, op_name: str,
        kwarg_overrides: Any = None, *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        self._note_product(kernel_inputs, op_name, kwarg_overrides)
        return STOCK

    def _attach_runs(self) -> None:
        if self._open:
            self._runs.attach(self._patches)

    def _attach_grouped(self) -> None:
        module: Any = sys.modules["torch._inductor.kernel.mm_grouped"]
        if self._open and part(module, LOWERS_GROUPS) is not None:
            self._patches.wrap(module, LOWERS_GROUPS, self._wrap_grouped)

    def _wrap_grouped(self, theirs: Function) -> Function:
        signature = inspect.signature(theirs)

        @guard("a product was not noted", stock=theirs)
        def lowered(*args: Any, **kwargs: Any) -> Any:
            from diode_engine.inductor.lowering import grouped_offers

            asked = grouped_offers.read_request(signature, args, kwargs)
            if asked is not None:
                self._note_product(asked.kernel_inputs, str(asked.op), asked.overrides)
            return STOCK

        return lowered

    def _note_product(self, kernel_inputs: Any, op_name: str, overrides: Any) -> None:
        place = self._place()
        if place is None or op_name not in OPERATORS:
            return
        problem = _read_problem(kernel_inputs, op_name, overrides)
        is_described = isinstance(problem, str)
        dynamic = is_described or _is_dynamic(kernel_inputs)
        form = {} if isinstance(problem, str) else _form_of(problem, kernel_inputs, place[1])
        self._note_lowered(place, problem, kernel_inputs.device_type, dynamic=dynamic, form=form)

    def _note_lowered(
        self, place: tuple[list[Any], Any, Any], problem: Problem | str, device: str, *,
        dynamic: bool = False, form: Mapping[str, Any] | None = None, activation: str = "",
    ) -> None:  # fmt: skip
        at, graph, node = place
        if self._process != os.getpid():  # the first product, or a forked process
            self._process = os.getpid()
            self._note(diode=_what_chooses())
        self._note(
            at=at,
            product={
                "name": str(problem),
                "problem": None if isinstance(problem, str) else problem.to_dict(),
                "activation": activation,
                "dynamic": dynamic,
                "form": form or {},
                "device": device,
                "phase": _phase(graph),
                "mode": _mode(),
                **_place_of(node),
            },
        )

    def _place(self) -> tuple[list[Any], Any, Any] | None:
        """Return the key of the node that is being lowered (its graph's number and its name), the
        graph, and the node; None where no graph of the program is being lowered."""
        virtualized: Any = sys.modules["torch._inductor.virtualized"]
        graph = virtualized.V.graph
        node = getattr(graph, "current_node", None)
        # Diode's own graphs, in which it asks what is offered, have no call.
        if node is None or node.op != "call_function":
            return None
        number = self._number_of(graph)
        if number is None:
            number = next(self._numbers)
            graph.__dict__.setdefault(_NUMBERS, {})[id(self)] = number
        return [number, node.name], graph, node

    def _number_of(self, graph: Any) -> int | None:
        """Return the graph's number in these notes; None where it has none."""
        number: int | None = getattr(graph, _NUMBERS, {}).get(id(self))
        return number


def _read_problem(kernel_inputs: Any, op_name: str, overrides: Any) -> Problem | str:
    """Return the problem for which Inductor asks, or a description where Diode has none."""
    from diode_engine.inductor.lowering.candidates import problem_of

    try:
        problem = problem_of(kernel_inputs, op_name, overrides)
    except Exception as error:  # noqa: BLE001  # an unbacked size, or anything in a future torch
        return f"{op_name}: {type(error).__name__}: {error}"[:300]
    if problem is not None:
        return problem
    shapes = [tuple(shape) for shape in kernel_inputs.shapes_symbolic()]
    return f"{op_name} of {kernel_inputs.dtypes()}, {shapes}"[:300]


def fields_of(choice: Choice) -> dict[str, Any]:
    """Return a choice as a note has it."""
    return {
        "problem": choice.problem.to_dict(),
        "kernels": [candidate.to_dict() for candidate in choice.candidates],
        "predicted_us": choice.predicted_us[0] if choice.predicted_us else None,
        "library_us": choice.library_us,
        "confidence": choice.confidence,
        "why": str(choice.why),
        "by_rows": [(most, kernel.to_dict()) for most, kernel in choice.by_rows],
    }


def _what_chooses() -> dict[str, Any]:
    state, reason = INSTALLATION.state()
    choices = INSTALLATION.decision.choices
    found: dict[str, Any] = {
        "active": state is State.ACTIVE,
        "reason": reason,
        "fingerprint": read_fingerprint().to_dict(),
    }
    if choices is not None:
        chooser = choices.diode_chooser
        found |= {"model": chooser.model, "hardware": chooser.hardware.to_dict()}
    return found


def _is_dynamic(kernel_inputs: Any) -> bool:
    shapes = kernel_inputs.shapes_symbolic()
    return any(getattr(size, "free_symbols", ()) for shape in shapes for size in shape)


def _form_of(problem: Problem, kernel_inputs: Any, graph: Any) -> dict[str, Any]:
    """Return what distinguishes the product in a file of frozen choices, besides its problem."""
    from diode_engine.inductor.choosing.compile_options import fuses_epilogues
    from diode_engine.inductor.choosing.product import form_of
    from diode_engine.inductor.fusion.epilogue import current_epilogue

    epilogue = current_epilogue(graph) if fuses_epilogues() else None
    form = form_of(problem, kernel_inputs, epilogue)
    fields = ("epilogue", "dynamic", "invariant")
    return {name: getattr(form, name) for name in fields}


def _phase(graph: Any) -> str:
    if graph.is_backward:
        return "backward"
    return "inference" if graph.is_inference else "forward"


def _mode() -> str:
    """Return the mode in which the program has the present product lowered."""
    from torch._inductor import config

    from diode_engine.inductor.choosing.default_mode import Mode, current_mode

    mode = current_mode()
    fast = part(config, "fast_autotune") or part(config, "diode_batch_invariant")
    searches = mode is Mode.UNKNOWN and (config.max_autotune or config.max_autotune_gemm)
    if mode is Mode.SEARCH or searches:
        return "max-autotune"
    if fast:
        return "fast_autotune"
    return "max-autotune" if mode is Mode.DEFAULT else "default"


def _place_of(node: Any) -> dict[str, Any]:
    """Return where the node is in the program (see reports.record.Place)."""
    meta = getattr(node, "meta", {})
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    module, kind = next(reversed(stack.values()), ("", ""))
    frames = _FRAME.findall(meta.get("stack_trace") or "")
    file, line, code = frames[-1] if frames else ("", 0, "")
    return {
        "module": _ROOT.sub("", str(module)),
        "kind": getattr(kind, "__name__", str(kind).rpartition(".")[2]),
        "file": file,
        "line": int(line),
        "code": code,
    }
