"""Inductor's real lowering on a machine without a GPU.

`pretend` makes this process believe that it has a given GPU. `lower` then runs the whole of
torch.compile on tensors without data, up to the generated source. No kernel is compiled or
launched, and nothing is timed: it shows which kernels would be chosen. Checked on torch 2.10 to
2.15 with the Triton of each.
"""

from diode_engine.inductor.without_gpu.device import pretend
from diode_engine.inductor.without_gpu.program import Lowered, Seen, lower, lowering, without_data

__all__ = ["Lowered", "Seen", "lower", "lowering", "pretend", "without_data"]
