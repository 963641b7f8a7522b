"""Keeps Inductor from fusing an epilogue for which a Triton kernel has no registers.

Where one kernel is taken, Inductor fuses every pointwise op that it can. The kernel then loads its
tile of each other operand while its accumulators are still alive. What exceeds 255 registers is
spilled to memory, by every thread, and that can cost more than the pointwise kernel that is saved.
(Where several kernels are kept, Inductor times them fused and not fused.)

The estimate for kernels that use wgmma, in registers of a thread:

    accumulators · (1 + 1 where they are integers, which become floats + bytes of the operands / 4)
        + 42

Here the bytes are those of an element of each operand of the output's size. Of 166 kernels that
were compiled for an H200 with Triton 3.7.1 (docs/notes/experiments.md), those that
exceed 255 by up to 128 registers by this estimate spill 2.3 bytes for each element of the output at
the median, those that exceed it by more 18.3 (2.6 and 21.1 with Triton 3.6.0). What is spilled is
stored and loaded again. Fusing saves 4 bytes an element, or 8 of integers.
"""

from __future__ import annotations

from typing import Any

from torch._inductor.dependencies import MemoryDep
from torch._inductor.virtualized import V

from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import encode
from diode_engine.core.hardware import detect
from diode_engine.core.problem import Problem
from diode_engine.core.resources import accumulator_registers, uses_wgmma, wgmma_type

MAX_REGISTERS = 255  # of a thread, at most
_OTHERS = 42  # addresses and the like
MAX_SPILLED = 128  # by the estimate
_ACCUMULATORS = "_diode_accumulators"
_ALONE = "_diode_alone"


def note_accumulators(choice: Any, candidate: Candidate, problem: Problem) -> None:
    """Note at a rendered choice that is taken alone how many registers its accumulators need. Notes
    nothing at a kernel without wgmma, for which the estimate does not hold."""
    c, device = encode([candidate]), choice.layout.device
    typed = wgmma_type(problem, detect(device.index))
    if c.tiled[0] and uses_wgmma(typed, c.block_m, c.warps)[0]:
        registers = int(accumulator_registers(c.block_m, c.block_n, c.warps)[0])
        # Of a choice this function is all that Inductor passes on to its scheduler.
        setattr(choice.make_kernel_render, _ACCUMULATORS, registers)


def keep_alone(choice: Any) -> None:
    """Keep Inductor from fusing anything behind a rendered choice that is taken alone. What can be
    fused depends on the tile; then the product would be rounded for some batches only."""
    setattr(choice.make_kernel_render, _ALONE, True)


def can_fuse(first: Any, second: Any) -> bool:
    """Return whether the scheduler's node `second` may be fused behind `first`: by the registers
    that it will need, and not behind a kernel that `keep_alone` has seen."""
    if hasattr(getattr(first.get_template_node(), "make_kernel_render", None), _ALONE):
        return False
    count = estimate_registers(first, second)
    return count is None or count <= MAX_REGISTERS + MAX_SPILLED


def estimate_registers(first: Any, second: Any) -> float | None:
    """Return the estimated registers of a thread of the scheduler's node `first` with `second`
    fused behind it; None where `first` is no kernel that `note_accumulators` has seen."""
    template = first.get_template_node()
    render = getattr(template, "make_kernel_render", None)
    accumulators: int | None = getattr(render, _ACCUMULATORS, None)
    if accumulators is None:
        return None
    epilogue = [*(node for node in first.get_nodes() if not node.is_template()), second]
    known = first.get_buffer_names() | second.get_buffer_names()
    numel, graph = template.get_numel(), V.graph
    operands = {
        read.name
        for node in epilogue
        for read in node.read_writes.reads
        if isinstance(read, MemoryDep)
        and read.name not in known
        and graph.sizevars.statically_known_equals(read.get_numel(), numel)
    }
    converted = not template.get_dtype().is_floating_point
    words = 1 + converted + sum(graph.get_dtype(name).itemsize for name in operands) / 4
    return accumulators * words + _OTHERS
