"""Which of the problems that sources draw are taken."""

from __future__ import annotations

from dataclasses import dataclass

from diode_engine.core.operand import TYPES, Layout, short_name
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.errors import CollectionError
from diode_engine.problems.sources.drawing import check_names
from diode_engine.problems.splits import held_out_by

OPS = tuple(OPERATORS)
LAYOUTS = tuple(f"{a}/{b}" for a in Layout for b in Layout)


@dataclass(frozen=True)
class Wanted:
    """Problems of these ops (of OPS), types (of TYPES, in any spelling) and layouts of the operands
    (of LAYOUTS), with M, N and K from `least` to `most`; where nothing is named, all are taken.
    With `held_out` only problems that training holds out (see `splits.held_out_by`). Raises
    CollectionError for an unknown name, and where no size is possible."""

    ops: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    held_out: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", tuple(map(short_name, self.types)))
        check_names(self.ops, OPS, "There is no op")
        check_names(self.types, TYPES, "There is no type")
        check_names(self.layouts, LAYOUTS, "There is no layout")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise CollectionError(
                f"No size is from {self.least} to {self.most}; give the smallest size first."
            )

    def holds(self, problem: Problem) -> bool:
        """Whether the problem is one of those that are wanted."""
        p = problem
        return (
            (not self.ops or str(p.op) in self.ops)
            and (not self.types or ("tf32" if p.allow_tf32 else p.dtype.short) in self.types)
            and (not self.layouts or f"{p.a.layout}/{p.b.layout}" in self.layouts)
            and (self.least is None or min(p.M, p.N, p.K) >= self.least)
            and (self.most is None or max(p.M, p.N, p.K) <= self.most)
            and (not self.held_out or bool(held_out_by(p)))
        )
