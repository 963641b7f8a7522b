"""The library's product by a named algorithm of cuBLASLt, as the code that Inductor generates calls
it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from diode_engine.inductor.library.cublaslt import CublasError, Library, Product
from diode_engine.models.library_algorithms import Config

log = logging.getLogger(__name__)

ALIGNMENT = 16  # bytes: of the addresses and strides that the algorithms are asked for
Launch = Callable[[int, int, int, int], int]


class Plan(NamedTuple):
    """What a call site computes, and by which algorithm; a call has it as a text."""

    product: str  # the operator, its sizes and type
    tf32: bool
    config: Config

    def __str__(self) -> str:
        numbers = ".".join(map(str, self.config))
        return f"{self.product}{' in TF32' * self.tf32} by {numbers}"

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Return the plan of a text."""
        product, _, numbers = text.rpartition(" by ")
        config = Config(*map(int, numbers.split(".")))
        return cls(product.removesuffix(" in TF32"), product.endswith(" in TF32"), config)


class _Known(threading.local):
    """What a thread has prepared. (A product's description has the address of its bias, so threads
    do not share it.)"""

    def __init__(self) -> None:
        self.launches: dict[tuple[Any, ...], Launch] = {}
        self.libraries: dict[int, Library] = {}


_known = _Known()


def library_of(device: int) -> Library:
    """Return cuBLASLt for a device in this thread. Raises CublasError, and OSError, where torch has
    loaded none."""
    if device not in _known.libraries:
        with torch.cuda.device(device):
            _known.libraries[device] = Library()
    return _known.libraries[device]


def diode_library_product(*inputs: torch.Tensor, out: torch.Tensor, plan: str) -> None:
    """Write a @ b, or with three inputs bias + a @ b, to `out`, by the algorithm of the plan; by
    torch's own call where cuBLASLt does not take that, or a tensor's address is odd."""
    bias = inputs[0].data_ptr() if len(inputs) > 2 else 0
    a, b, to = inputs[-2].data_ptr(), inputs[-1].data_ptr(), out.data_ptr()
    # Products of the same sizes may have operands, a bias or an output of other strides.
    key = plan, out.get_device(), out.stride(), *[tensor.stride() for tensor in inputs]
    launch = _known.launches.get(key)
    if launch is None:
        launch = _known.launches[key] = _prepare(plan, inputs, out)
    if (a | b | to | bias) % ALIGNMENT or launch(a, b, to, bias):
        _call_torch(inputs, out)


def _prepare(text: str, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> Launch:
    """Return the launch of a plan, or a function that refuses."""
    try:
        plan = Plan.parse(text)
        *bias, a, b = inputs
        library = library_of(out.get_device())
        product = Product(library, a, b, out, bias=bias[0] if bias else None, tf32=plan.tf32)
        algorithm = library.changed(product.initial(plan.config.id), plan.config)
        found = product.check(algorithm) if algorithm else None
        if found is None:
            raise CublasError(f"cuBLASLt {library.version} refuses it.")
        return product.launcher(found)
    except Exception as error:  # noqa: BLE001  # the program goes on without it
        log.warning("torch's own call is used for the product %s: %s", text, error)
        return lambda *_: 1


def _call_torch(inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
    if len(inputs) > 2:
        (torch.baddbmm if out.dim() > 2 else torch.addmm)(*inputs, out=out)
    else:
        torch.matmul(*inputs, out=out)
