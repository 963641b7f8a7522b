"""The name DIODE in the option max_autotune_gemm_backends. It stands for the backends that Diode
chooses among, ATEN and TRITON; where Diode is not active it means that Inductor benchmarks
those."""

from __future__ import annotations

import functools
import sys
from typing import Any

from diode_engine.inductor.choosing.current import report_failure
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import USES_BACKEND

TOKEN = "DIODE"
_STANDS_FOR = ("ATEN", "TRITON")


def in_use(backend: str) -> bool:
    """Whether Inductor uses kernels of this backend in the present compile."""
    utils: Any = sys.modules["torch._inductor.utils"]
    return bool(getattr(utils, USES_BACKEND)(backend))


def attach() -> None:
    """Makes Inductor understand the name, once; after torch._inductor.utils was imported."""
    utils: Any = sys.modules["torch._inductor.utils"]
    original = part(utils, USES_BACKEND)
    if original is None or hasattr(original, "_diode"):
        return

    @guard("a GEMM backend was not looked up", stock=original, report=report_failure)
    @functools.wraps(original)
    def use(backend: str) -> bool:
        return True if backend.upper() in _STANDS_FOR and original(TOKEN) else STOCK

    use._diode = True  # type: ignore[attr-defined]
    # Also in modules that have imported the function by its name before.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch._inductor") and vars(module).get(USES_BACKEND) is original:
            setattr(module, USES_BACKEND, use)
