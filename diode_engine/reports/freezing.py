"""Freezes the choices of a program: makes them from the notes that its processes took (see
inductor.hook.product_notes)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from diode_engine.choosing.choice import Why
from diode_engine.choosing.frozen import (
    FrozenChoice,
    FrozenChoices,
    FrozenDecision,
    Origin,
    ProductForm,
)
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.documents import shortened
from diode_engine.errors import FrozenChoicesError
from diode_engine.reports.assembling import (
    NOT_ASKED,
    Lowered,
    Notes,
    find_model,
    join_notes,
    numbers_in,
)
from diode_engine.version import __version__, torch_version, triton_version, without_patch

# What has to be the same in all processes of a program.
_SHARED = ("gpu", "model_key", "torch")


def freeze(processes: Iterable[Notes], program: str) -> FrozenChoices:
    """Return the choices of a program whose processes took these notes. Products that were compiled
    in the default mode, or for the CPU, have none. Raises FrozenChoicesError where there are no
    choices, or not one for each product."""
    processes = list(processes)
    origin = _find_origin(processes, program)
    lowered = join_notes(processes)
    found: dict[Hashable, FrozenChoice] = {}
    for choice in sorted(filter(None, map(_freeze_product, lowered)), key=_rank):
        first = found.setdefault(choice.product.key, choice)
        moves = choice.why == Why.LAYOUT  # which follows from the layouts in every compile
        if choice.kernel != first.kernel and not (moves or choice.product.dynamic):
            raise FrozenChoicesError(
                f"The program compiles {choice.product} to two kernels, {first.kernel} and "
                f"{choice.kernel}. Compile it with the same options everywhere."
            )
    if not found and not any(each.product.get("activation") for each in lowered):
        raise FrozenChoicesError(
            "Diode chose no kernel for the program's products. Compile it with "
            'mode="max-autotune-no-cudagraphs" or options={"fast_autotune": True}.'
        )
    decisions: dict[tuple[str, Problem], bool] = {}
    for notes in processes:
        for note in notes:
            if "decision" in note:
                said = note["decision"]
                key = said["what"], Problem.from_dict(said["problem"])
                decisions[key] = decisions.get(key, True) and said["answer"]
    frozen = (FrozenDecision(*key, answer) for key, answer in decisions.items())
    return FrozenChoices(origin, tuple(found.values()), tuple(frozen))


def _find_origin(processes: Iterable[Notes], program: str) -> Origin:
    origins = [
        _origin(note["diode"], program) for notes in processes for note in notes if "diode" in note
    ]
    if not origins:
        raise FrozenChoicesError("The program has compiled no product, so there are no choices.")
    for each in origins[1:]:
        if any(getattr(each, name) != getattr(origins[0], name) for name in _SHARED):
            raise FrozenChoicesError(
                "Processes of the program choose for different GPUs, or by different models: "
                f"{each.gpu} by {each.model}, and {origins[0].gpu} by {origins[0].model}. Freeze "
                "the choices of each by itself."
            )
    return origins[0]


def _origin(said: Mapping[str, Any], program: str) -> Origin:
    if not said["active"]:
        raise FrozenChoicesError(f"Diode was off in the program: {said['reason'].rstrip('.')}.")
    if not said["model"]:
        raise FrozenChoicesError(
            "The program ran with frozen choices and without a model. Run it without "
            "DIODE_FROZEN_CHOICES."
        )
    model = find_model(said["model"])
    parts = said["fingerprint"]["parts"]
    return Origin(
        program=shortened(program, 1000),
        gpu=said["hardware"]["name"],
        torch=without_patch(parts.get("torch", torch_version() or "")),
        triton=parts.get("triton", triton_version() or ""),
        diode=__version__,
        model=said["model"] if model is None else model.reference,
        model_key=said["model"],
        fingerprint=said["fingerprint"]["key"],
    )


def _freeze_product(lowered: Lowered) -> FrozenChoice | None:
    """Return the choice of a product; None where the compile does not ask Diode for it."""
    noted, choice = lowered.product, lowered.choice
    fields = noted["problem"] or (choice or {}).get("problem")
    if noted["mode"] == "default" or noted["device"] == "cpu" or fields is None:
        return None
    if noted.get("activation"):  # a decision says so
        return None
    product = ProductForm(Problem.from_dict(fields), **noted["form"])
    if choice is None:
        return FrozenChoice(product, None, lowered.left or NOT_ASKED)
    kernels = [Candidate.from_dict(kernel) for kernel in choice["kernels"]]
    if len(kernels) > 1:
        raise FrozenChoicesError(
            f"Inductor has timed {len(kernels)} kernels for {product}. To freeze one, run "
            "diode-engine freeze, or set torch._inductor.config.deterministic."
        )
    by_rows = tuple(
        (most, Candidate.from_dict(kernel)) for most, kernel in choice.get("by_rows", ())
    )
    kernel = by_rows[-1][1] if by_rows else kernels[0]
    return FrozenChoice(product, kernel, choice["why"], **numbers_in(choice), by_rows=by_rows)


def _rank(choice: FrozenChoice) -> tuple[bool, bool, list[tuple[str, str]]]:
    """Return the order in which choices for one product count. A kernel that the library's has
    replaced for the operands' layouts is replaced there in every compile; of a dynamic product the
    choice for the smallest first size counts, whatever is compiled first."""
    sizes = sorted((name, f"{v:>12}") for name, v in choice.product.problem.to_dict().items())
    return choice.why == Why.LAYOUT, choice.kernel is None, sizes
