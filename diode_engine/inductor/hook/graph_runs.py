"""Counts how often compiled graphs run, while a report is made."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from diode_engine.inductor.guard import do_nothing, guard
from diode_engine.inductor.patches import Function, Patches


class GraphRuns:
    """The runs of compiled graphs by their number. `number_of` gives the number of a graph that
    Inductor has lowered, None for a graph without one."""

    def __init__(self, number_of: Callable[[Any], int | None]) -> None:
        self.counts: Counter[int] = Counter()
        self._number_of = number_of
        self._numbers: dict[int, int] = {}  # by the id of the compiled graph

    def attach(self, patches: Patches) -> None:
        """Count from now on, until the patches are restored."""
        kind: Any = sys.modules["torch._inductor.output_code"].CompiledFxGraph
        patches.wrap(kind, "__init__", self._wrap_init)
        patches.wrap(kind, "__call__", self._wrap_call)

    def _wrap_init(self, theirs: Function) -> Function:
        signature = inspect.signature(theirs)

        @guard("the runs of a graph are not counted", stock=do_nothing)
        def remember(compiled: Any, *args: Any, **kwargs: Any) -> None:
            graph = signature.bind(compiled, *args, **kwargs).arguments["graph"]
            if (number := self._number_of(graph)) is not None:
                self._numbers[id(compiled)] = number

        def init(compiled: Any, *args: Any, **kwargs: Any) -> None:
            theirs(compiled, *args, **kwargs)
            remember(compiled, *args, **kwargs)

        return init

    def _wrap_call(self, theirs: Function) -> Function:
        def call(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            number = self._numbers.get(id(compiled))
            if number is not None:
                self.counts[number] += 1
            return theirs(compiled, *args, **kwargs)

        return call
