"""Inductor's KernelTemplateChoices for the picked kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch._inductor.kernel_template_choice import KernelTemplateChoice

from diode_engine.inductor.choosing.compile_options import other_backends
from diode_engine.inductor.choosing.decision import ANNOTATION, ChosenKernel, Pick, chosen_kernel_of
from diode_engine.inductor.choosing.request import Request
from diode_engine.inductor.lowering import layouts
from diode_engine.inductor.torch_internals.templates import parts_of_choices
from diode_engine.inductor.torch_internals.versions import template_heuristic


def made(predictions: Sequence[ChosenKernel], request: Request) -> list[Any]:
    """The KernelTemplateChoices of the picks. Where a template's operands will get another layout,
    the library's kernel is added; `final_choice` then takes that."""
    found = dict(zip(request.offers, request.templates, strict=True))
    if len(predictions) == 1 and not predictions[0].pick.candidate.is_extern:
        only = predictions[0]
        library = only.decision.library
        if library is not None and layouts.will_move(request.kernel_inputs.nodes()):
            predictions = [only, replace(only, pick=library)]
    return annotated(
        [_rebuilt(p.pick, found[p.pick.uid], request) for p in predictions], predictions
    )


def takes_library(choices: Sequence[Any]) -> bool:
    """Whether Diode takes a library's kernel for the product, and no other may be taken: of these
    choices by a benchmark, or of another backend."""
    seen = [chosen_kernel_of(choice) for choice in choices]
    return (
        bool(seen)
        and all(p is not None and p.pick.candidate.is_extern and p.decision.keep == 1 for p in seen)
        and not other_backends()
    )


def annotated(choices: list[Any], predictions: Sequence[ChosenKernel]) -> list[Any]:
    """The same choices, each with its prediction."""
    for choice, prediction in zip(choices, predictions, strict=True):
        choice.annotations[ANNOTATION] = prediction
    return choices


def _rebuilt(pick: Pick, template: Any, request: Request) -> Any:
    """The KernelTemplateChoice that the template's generator (of InductorChoices.get_ktc) would
    yield for the pick, without the ones that it would yield before. Parts that take Inductor long
    to make are reused: those of a listed choice, or those that the generator was given."""
    op_name, kernel_inputs, offer = request.op_name, request.kernel_inputs, request.offers[pick.uid]
    if isinstance(offer, list) and offer:
        return KernelTemplateChoice(
            template, pick.params, offer[0].extra_kwargs, offer[0].layout, offer[0].inputs
        )
    made_with = parts_of_choices(offer)
    if made_with is None:
        heuristic = template_heuristic(template.uid, kernel_inputs.device_type, op_name)
        made_with = (
            heuristic.get_extra_kwargs(kernel_inputs, op_name),
            kernel_inputs.output_layout(),
            heuristic.adjust_kernel_inputs(kernel_inputs, op_name),
        )
    return KernelTemplateChoice(template, pick.params, *made_with)
