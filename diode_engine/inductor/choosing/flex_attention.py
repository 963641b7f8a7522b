"""Chooses FlexAttention's configs. Inductor asks for a list of configs by head size and type alone;
the rest of the call is read from the node of the graph that is being lowered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

from torch._inductor import config
from torch._inductor.virtualized import V

from diode_engine.choosing.outcomes import FLEX_CALLS, Outcomes
from diode_engine.core.hardware import Hardware, detect
from diode_engine.errors import ModelError
from diode_engine.inductor.choosing import search, trace
from diode_engine.inductor.choosing.compile_options import (
    chooses_in_any_mode,
    has_frozen_choices,
    is_freezing,
)
from diode_engine.inductor.guard import STOCK
from diode_engine.inductor.lowering.flex_attention import Unmeasured, call_of
from diode_engine.inductor.torch_internals import DEVICE_TYPE
from diode_engine.models.flex_attention import FIELDS, FlexTable, table_for

log = logging.getLogger(__name__)

OfferedConfigs = Callable[[], list[Any]]  # makes Inductor's list, by the present options

_EVERY = {"max_autotune": True, "max_autotune_flex_search_space": "EXHAUSTIVE"}


class FlexChooser:
    """Chooses by the shipped table of a GPU, where it has one."""

    def __init__(self, hardware: Hardware, outcomes: Outcomes) -> None:
        self._hardware = hardware
        self._outcomes = outcomes

    @cached_property
    def table(self) -> FlexTable | None:
        """The table; None where the GPU has none, or it cannot be read."""
        try:
            return table_for(self._hardware)
        except ModelError as error:
            what = "FlexAttention's table could not be read"
            self._outcomes.report_failure(what, error, FLEX_CALLS)
            return None

    def is_measured(self) -> bool:
        """Return whether the GPU has a table; True with frozen choices, which need none."""
        return has_frozen_choices() or self.table is not None

    @property
    def identity(self) -> str:
        """A key of everything that the choices depend on."""
        return "none" if self.table is None else self.table.identity

    def configs(self, kind: str, offered: OfferedConfigs) -> Any:
        """The list of the one config to render for the call that is being lowered, or STOCK where
        no similar call was measured."""
        if not (config.max_autotune or config.max_autotune_gemm or chooses_in_any_mode()):
            return STOCK
        if is_freezing() or has_frozen_choices():  # nothing is timed, and no table is loaded
            with config.patch(max_autotune=False):
                return offered()
        try:
            return [self._chosen(kind, offered)]
        except Unmeasured as unlike:
            log.debug("A %s call of FlexAttention is left to Inductor: %s.", kind, unlike)
            self._outcomes.stats.count_passed("flex_attention")
            return STOCK

    def _chosen(self, kind: str, offered: OfferedConfigs) -> Any:
        if self.table is None:
            raise Unmeasured(f"nothing was measured on {self._hardware.name}")
        if (why := search.find_alteration()) is not None:
            raise Unmeasured(why)
        node: Any = V.graph.current_node
        call = call_of(kind, node)
        device = node.args[0].meta["val"].device
        if device.type != DEVICE_TYPE or detect(device.index) != self._hardware:
            raise Unmeasured(f"it is for {device}")
        group = self.table.group(kind, call.head, call.dtype)
        choice = None if group is None else group.chosen(call)
        if group is None or choice is None:
            raise Unmeasured(f"no call like {call} was measured")
        with config.patch(max_autotune=False):
            defaults = offered()
        if [_values(kind, each) for each in defaults] != [group.default]:
            raise Unmeasured("Inductor's default is not the one that was measured")
        with config.patch(_EVERY):
            every = chain(defaults, offered())
        found = next((each for each in every if _values(kind, each) == choice.config), None)
        if found is None:
            raise Unmeasured(f"Inductor does not offer {choice.config}")
        self._outcomes.stats.count("flex_decided")
        trace.trace_flex_choice(call, choice, group.default)
        return replace(found)  # a copy, since Inductor changes some configs in place


def _values(kind: str, offered: Any) -> tuple[int, ...] | None:
    """The values of one of Inductor's configs; None where it has other fields than Diode knows."""
    names = tuple(field.name for field in fields(offered))
    return attrgetter(*names)(offered) if names == FIELDS[kind] else None
