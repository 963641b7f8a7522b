"""Lowers a product as plain torch.compile does, where Diode makes no choice for it.

Under max-autotune Inductor would benchmark such a product, under fast_autotune Diode's part of the
lowering has no answer. Either way the present lowering ends, and the product is lowered again in
the default mode: with the library's kernel, and without a benchmark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

from torch._inductor import config, utils

from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.compile_options import (
    CompileOptions,
    has_frozen_choices,
    is_batch_invariant,
    splitting_keys,
    takes_one_kernel,
)

log = logging.getLogger(__name__)


class Mode(Enum):
    """How the present product is lowered."""

    UNKNOWN = "unknown"  # by a function that Diode has not wrapped
    SEARCH = "search"  # under max-autotune
    FAST = "fast"  # under fast_autotune alone
    DEFAULT = "default"  # again, as in the default mode


class LeftToDefault(BaseException):
    """Ends the present lowering, before it has changed anything. The product is then lowered again
    as in the default mode. It is no Exception, so that no guard on the way takes it for a
    failure."""


_mode = ContextVar("diode_lowering_mode", default=Mode.UNKNOWN)


@contextmanager
def lowering_in(mode: Mode) -> Iterator[None]:
    """Lowers one product in this mode while it is open: FAST searches without max-autotune, DEFAULT
    does not search under max-autotune."""
    options: dict[str, Any] = {}
    if mode is Mode.FAST:
        options = {"max_autotune_gemm": True}
    elif mode is Mode.DEFAULT:
        options = {"max_autotune": False, "max_autotune_gemm": False}
    if is_batch_invariant():  # by M Inductor offers only splits of K
        options |= dict.fromkeys(splitting_keys(), 0)
    token = _mode.set(mode)
    try:
        with config.patch(options):
            yield
    finally:
        _mode.reset(token)


def current_mode() -> Mode:
    """Return how the present product is lowered."""
    return _mode.get()


def leave_to_default() -> None:
    """Raises LeftToDefault, unless the program asks for Inductor's search: by the option
    diode_fallback_to_autotune, which deterministic results overrule, or, under max-autotune, in
    another way (see `_asks_for_search`), which frozen choices overrule."""
    mode = _mode.get()
    if mode not in (Mode.SEARCH, Mode.FAST):
        return
    if config.diode_fallback_to_autotune and not takes_one_kernel():  # type: ignore[attr-defined]
        return
    if mode is Mode.SEARCH and not has_frozen_choices() and _asks_for_search():
        return
    raise LeftToDefault


def _asks_for_search() -> bool:
    """Whether the program wants the search of max-autotune itself: it has altered the search, or it
    names other backends than Triton and ATen, or no ATen."""
    try:
        return (
            CompileOptions.current().other_backends
            or not utils.use_aten_gemm_kernels()
            or search.find_alteration() is not None
        )
    except Exception:
        log.debug("Could not read how products are searched.", exc_info=True)
        return False
