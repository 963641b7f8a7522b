"""What would be chosen for a product that is not in the graph that is compiled.

Some decisions come before a product is lowered: whether to pad it, and whether a convolution is to
become one. They ask what Inductor would offer for the product, and what Diode would choose.
"""

from __future__ import annotations

from typing import Any

import torch

from diode_engine.choosing.choice import Choice
from diode_engine.core.encoding import CandidateTable
from diode_engine.core.hardware import detect
from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing.compile_options import CompileOptions, offering_options
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.lowering import kernels


def choose_outside_graph(
    chooser: ProductChooser, problem: Problem, device: torch.device
) -> Choice | None:
    """Return the choice for the problem, if one kernel is kept and nothing is fused into it; None
    where the model has no prediction, or the device is another GPU than its. It is remembered for
    each problem, with the options that decide what Inductor offers."""
    if detect(device.index) != chooser.hardware:
        return None
    key = (problem, offering_options())
    if key not in chooser.outside:

        def find(offers: kernels.Offers, kernel_inputs: Any, op_name: str) -> CandidateTable:
            sizes = kernel_inputs.mnk_hinted()
            space = chooser.spaces.find(
                op_name, kernel_inputs, tuple(offers), sizes, offers.__getitem__
            )
            return space.candidates

        with kernels.graph_for(problem, device) as operands:
            offered = CandidateTable.joined(kernels.read_offers(find, problem.op, operands))
        prediction = chooser.predict(problem, offered)
        chooser.outside[key] = chooser.chooser.policy.choose(prediction)
    return chooser.outside[key]


def is_sure(choice: Choice) -> bool:
    """Return whether the model is as sure of the choice as the options ask, or does not say. True
    where nothing may be benchmarked."""
    options = CompileOptions.current()
    if choice.confidence is None or options.deterministic:
        return True
    return choice.confidence >= options.confidence
