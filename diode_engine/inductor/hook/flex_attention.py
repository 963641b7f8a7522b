"""Diode's choice of FlexAttention's configs, at the methods of InductorChoices that list them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._inductor.choices import InductorChoices
from torch._inductor.kernel.flex import flex_attention, flex_decoding

from diode_engine.choosing.outcomes import FLEX_CALLS
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.compile_options import is_batch_invariant
from diode_engine.inductor.choosing.current import current_chooser
from diode_engine.inductor.guard import STOCK, Report, guard
from diode_engine.inductor.patches import Patches, is_named_in
from diode_engine.models.flex_attention import BACKWARD, DECODING, FORWARD

_METHODS = {
    "get_flex_attention_fwd_configs": (FORWARD, flex_attention),
    "get_flex_attention_bwd_configs": (BACKWARD, flex_attention),
    "get_flex_decode_configs": (DECODING, flex_decoding),
}


def check_place() -> None:
    """Check that the lowerings of FlexAttention ask for configs. Raises IntegrationError where one
    does not."""
    for name, (_, module) in _METHODS.items():
        if not is_named_in(module, name):
            raise IntegrationError(f"{module.__name__} of this torch does not ask {name}.")


def apply(patches: Patches) -> None:
    """Wrap the methods."""
    for name, (kind, _) in _METHODS.items():
        patches.wrap(InductorChoices, name, functools.partial(_wrap, kind))


def _wrap(kind: str, theirs: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @guard("the config could not be chosen", stock=theirs, report=_report)
    def configs(self: InductorChoices, *args: Any, **kwargs: Any) -> Any:
        chooser = current_chooser()
        if chooser is None or is_batch_invariant():
            return STOCK
        return chooser.flex.configs(kind, functools.partial(theirs, self, *args, **kwargs))

    return configs


def _report(*_: Any, **__: Any) -> Report | None:
    chooser = current_chooser()
    if chooser is None:
        return None
    return functools.partial(chooser.outcomes.report_failure, left=FLEX_CALLS)
