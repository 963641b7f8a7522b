"""Chooses the kernel of a product whose results do not depend on the batch.

Inductor makes tiles smaller for few rows. Here it gets its configs with the tiles that they are to
have, so that the kernels of an order of summation are there for each number of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch._inductor.utils import use_triton_template

from diode_engine.choosing.choice import Why
from diode_engine.choosing.frozen import FrozenChoices
from diode_engine.choosing.frozen_kernel import FrozenKernel
from diode_engine.choosing.invariant import InvariantChooser, refusal, rows_of_space
from diode_engine.choosing.outcomes import Outcomes
from diode_engine.choosing.policy import Comparison
from diode_engine.choosing.ranges import MOST_KERNELS, RowRange, choice_of, choose_ranges
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing.chosen_kernels import ChosenKernel
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
    uses_triton = use_triton_template(inputs.output_layout(), check_max_autotune=False)
    if not uids and problem.op.biased and uses_triton:
        return []
    if not uids or product.may_exceed_32_bits:
        raise refusal("Inductor offers only the library's kernels")
    sizes = rows_of_space(product.problems), problem.N, problem.K
    space = spaces.find(request.op_name, inputs, uids, sizes, _refuse_list, scaled=False)
    most = MOST_KERNELS if can_generate() else 1
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
    frozen: FrozenKernel | None = None
    if isinstance(source, InvariantChooser):
        comparison, ranges, made = _find_fastest(source, product, space, most)
        choice = choice_of(comparison, ranges)
        library_us = source.library_us(product.problems[0])
    else:
        frozen = FrozenKernel.find(source, product.form)
        comparison, ranges, made = _find_frozen(frozen, product, space)
        choice = choice_of(comparison, ranges, Why.FROZEN)
        library_us = frozen.choice.library_us
    choice = replace(choice, library_us=library_us)
    return [
        ChosenKernel(
            choice, comparison, each.place, *kernel, outcomes, frozen=frozen,
            most_rows=each.most_rows,
        )
        for each, kernel in zip(ranges, made, strict=True)
    ]  # fmt: skip


_Found = tuple[Comparison, Sequence[RowRange], list[tuple[str, Any]]]  # the last as of space.kernel


def _find_fastest(
    chooser: InvariantChooser, product: Product, space: OfferedSpace, most: int
) -> _Found:
    """Return the fastest kernels that Inductor makes. Raises LeftToStock where there is none."""
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
            return comparison, ranges, made
    raise refusal("Inductor makes none of the kernels of the order")


def _find_frozen(frozen: FrozenKernel, product: Product, space: OfferedSpace) -> _Found:
    """Return the frozen kernels of a space in which they are. Raises FrozenChoicesError where one
    is not, and where the program cannot choose by the rows."""
    by_rows = frozen.choice.by_rows or ((None, frozen.choice.kernels[0]),)
    if len(by_rows) > 1 and not can_generate():
        frozen.file.refuse(
            f"this program cannot take one of several kernels for {frozen.choice.product}"
        )
    ranges = []
    for most_rows, kernel in by_rows:
        (place,) = frozen.places(space.candidates, kernel) or frozen.refuse()
        ranges.append(RowRange(place, most_rows))
    comparison = replace(
        frozen.compare(space.candidates, [each.place for each in ranges]),
        problems=product.problems[:1],
    )
    try:
        return comparison, ranges, [space.kernel(each.place) for each in ranges]
    except NotOffered:
        frozen.refuse()


def _refuse_list(uid: str) -> list[Any]:
    raise refusal(f"Inductor lists the configs of {uid} in another form")
