"""Chooses the kernel of a product whose results do not depend on the batch.

Inductor makes tiles smaller for few rows. Here it gets its configs with the tiles that they are to
have, so that the kernels of an order of summation are there for each number of rows.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from torch._inductor.utils import use_triton_template

from diode_engine.choosing.choice import Why
from diode_engine.choosing.frozen import FrozenChoices
from diode_engine.choosing.frozen_kernel import FrozenKernel
from diode_engine.choosing.invariant import InvariantChooser, refusal, rows_of_space
from diode_engine.choosing.outcomes import Outcomes
from diode_engine.choosing.ranges import MOST_KERNELS, choice_of, choose_ranges
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing.chosen_kernels import ChosenKernel
from diode_engine.inductor.choosing.compile_options import is_freezing
from diode_engine.inductor.choosing.product import Product, Request
from diode_engine.inductor.lowering.branches import can_generate
from diode_engine.inductor.lowering.space import NotOffered, OfferedSpace, Spaces

log = logging.getLogger(__name__)

_TRIES = 8  # kernels, of which Inductor makes the first that it can


def choose_of_one_order(
    request: Request,
    product: Product,
    source: InvariantChooser | FrozenChoices,
    spaces: Spaces,
    outcomes: Outcomes,
) -> list[ChosenKernel]:
    """Return the kernel for the product, or those among which the program chooses by the number of
    rows; none where an op asks for the library's kernels alone before it asks for Triton's, as
    addmm does. The `source` chooses them, or has the one.

    Raises LeftToStock where no kernel is known whose results do not depend on the batch, and
    FrozenChoicesError where the frozen kernel is not offered. It must be called inside
    `search_space("EXHAUSTIVE")`."""
    problem, inputs = product.problems[0], request.kernel_inputs
    if isinstance(source, InvariantChooser):
        source.orders_for(problem)
    uids = [u for u in request.offers if (known := template_of(u)).tiled and not known.own]
    if not uids and use_triton_template(inputs.output_layout(), check_max_autotune=False):
        return []
    if not uids or product.may_exceed_32_bits:
        raise refusal("Inductor offers only the library's kernels")
    sizes = rows_of_space(product.problems), problem.N, problem.K
    space = spaces.find(request.op_name, inputs, uids, sizes, _refuse_list, scaled=False)
    # A file of frozen choices has one kernel for a product.
    most = MOST_KERNELS if can_generate() and not is_freezing() else 1
    return choose_in_space(product, source, space, outcomes, most)


def choose_in_space(
    product: Product,
    source: InvariantChooser | FrozenChoices,
    space: OfferedSpace,
    outcomes: Outcomes,
    most: int = 1,
) -> list[ChosenKernel]:
    """Return the kernels of the product's order in the space, `most` at most, for the fewest rows
    first. Raises as `choose_of_one_order` does."""
    if not isinstance(source, InvariantChooser):
        return [_find_frozen(FrozenKernel.find(source, product.form), space, outcomes)]
    chooser = source
    comparison, places = chooser.compare(product.problems, space.candidates)
    for _ in range(_TRIES):
        ranges = choose_ranges(comparison, most)
        made = []
        for each in ranges:
            try:
                made.append(space.kernel(int(places[each.place])))
            except NotOffered as error:
                log.debug("%s", error)
                comparison.predicted_us[:, each.place] = np.nan
        if made and len(made) == len(ranges):
            choice = replace(
                choice_of(comparison, ranges),
                library_us=chooser.library_us(product.problems[0]),
            )
            return [
                ChosenKernel(
                    choice, comparison, each.place, *kernel, outcomes, most_rows=each.most_rows
                )
                for each, kernel in zip(ranges, made, strict=True)
            ]
    raise refusal("Inductor makes none of the kernels of the order")


def _find_frozen(frozen: FrozenKernel, space: OfferedSpace, outcomes: Outcomes) -> ChosenKernel:
    """Return the frozen kernel of a space in which it is. Raises FrozenChoicesError where it is
    not."""
    (place,) = frozen.places(space.candidates) or frozen.refuse()
    comparison = frozen.compare(space.candidates, [place])
    choice = replace(comparison.choice([place], Why.FROZEN), library_us=frozen.choice.library_us)
    try:
        kernel = space.kernel(place)
    except NotOffered:
        frozen.refuse()
    return ChosenKernel(choice, comparison, place, *kernel, outcomes, frozen=frozen)


def _refuse_list(uid: str) -> list[Any]:
    raise refusal(f"Inductor lists the configs of {uid} in another form")
