"""The problems that a product with dynamic sizes may stand for at run time.

A program is compiled for a dynamic size once, with the first value as a hint, and then runs with
other values. So kernels are judged at several values. The values of a symbol differ by equal
factors. They lie within the symbol's bounds, if the program sets bounds, and otherwise reach up to
sizes that are common in programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sympy
import torch
from torch._inductor.virtualized import V

from diode_engine.core.operand import ALIGNMENTS
from diode_engine.core.operators import OPERATORS
from diode_engine.core.operators.specification import Matrix, Scalar
from diode_engine.core.problem import Problem
from diode_engine.errors import RecordError
from diode_engine.inductor.lowering.candidates import problem_from

_VALUES = 12  # that a symbol is tried with
_MAX_SIZE = 1 << 20  # the largest of them
_USUAL = 8192  # a dimension without bounds is tried up to this size,
_BEYOND_HINT = 4  # or up to so many times its hint, if that is more
_MAX_INDEX = (1 << 31) - 1  # the largest index in Triton's templates
# From one problem to the next, a symbol goes on by so many of its values: 1 for the first symbol,
# and so on. Primes over 2 · _VALUES, so that every value has its turn.
_STEPS = (1, 29, 31, 41)


def find_symbols(rows: Sequence[Sequence[Any]]) -> list[sympy.Symbol]:
    """The free symbols of rows of Inductor's sizes or strides, in the order of their names."""
    sizes = [size for row in rows for size in row if isinstance(size, sympy.Expr)]
    return sorted({symbol for size in sizes for symbol in size.free_symbols}, key=str)


def describe_dynamic_sizes(kernel_inputs: Any, op_name: str) -> str:
    """Return the ranges of the product's dynamic sizes, such as "M 2 to 8192, K 2 or more"; ""
    where it has none."""
    shapes = zip(OPERATORS[op_name].inputs, kernel_inputs.shapes_symbolic(), strict=False)
    sizes: dict[str, Any] = {}
    for given, shape in shapes:
        if isinstance(given, Matrix):
            for dim, size in zip(reversed(given.dims), reversed(shape), strict=False):
                sizes.setdefault(dim, size)
    dynamic = {dim: size for dim, size in sizes.items() if getattr(size, "free_symbols", ())}
    return ", ".join(f"{dim} {_describe_range(dynamic[dim])}" for dim in sorted(dynamic))


def _describe_range(size: sympy.Expr) -> str:
    bounds = V.graph.sizevars.shape_env.bound_sympy(size)
    least = int(bounds.lower) if bounds.lower.is_Integer else 0
    if bounds.upper.is_Integer and int(bounds.upper) <= _MAX_INDEX:
        return f"{least} to {int(bounds.upper)}"
    return f"{least} or more"


def draw_problems(
    kernel_inputs: Any,
    op_name: str,
    hinted: Problem,
    attributes: tuple[tuple[str, Scalar], ...] = (),
    *,
    doubling: bool = False,
) -> tuple[Problem, ...]:
    """`hinted`, and the other problems that these KernelInputs of Inductor may stand for;
    `attributes` is what `attributes_from` returns. With `doubling` the first symbol's values are
    the powers of two and those halfway between, and the other problems do not depend on `hinted`,
    which may be one of them too."""
    shapes, strides = kernel_inputs.shapes_symbolic(), kernel_inputs.strides_symbolic()
    symbols = find_symbols([*shapes, *strides])
    if not symbols:
        return (hinted,)
    given = zip(OPERATORS[op_name].inputs, shapes, strides, strict=False)
    matrices = [row for each, *rows in given if isinstance(each, Matrix) for row in rows]
    of_matrices = set(find_symbols(matrices))
    # An op may ask again with another form of its bias. The matrices' sizes are the same then,
    # because the symbols of the bias alone come last.
    symbols.sort(key=lambda symbol: symbol not in of_matrices)
    return _drawn(
        op_name,
        tuple(map(tuple, shapes)),
        tuple(map(tuple, strides)),
        tuple((symbol, *_bounds(symbol)) for symbol in symbols),
        kernel_inputs.dtypes(),
        kernel_inputs.out_dtype(),
        hinted,
        attributes,
        doubling,
    )


def is_aligned_when_compiled(kernel_inputs: Any, op_name: str) -> bool:
    """Whether Triton's code may count on each matrix's rows (or columns) to begin at multiples of
    16 elements or at a fixed distance, as in the kernels that were timed. With a symbol in that
    stride it loads element by element, whatever the value at run time; a library's kernel looks at
    the value."""
    known = V.graph.sizevars.statically_known_multiple_of
    strides = kernel_inputs.strides_symbolic()
    return all(
        not step.free_symbols or known(step, max(ALIGNMENTS))
        for given, stride in zip(OPERATORS[op_name].inputs, strides, strict=False)
        if isinstance(given, Matrix)
        for step in stride[-2:]
        if isinstance(step, sympy.Expr)
    )


def may_exceed_32_bits(kernel_inputs: Any) -> bool:
    """Whether the program declares bounds of its dynamic sizes with which an operand or the result
    may have more elements than Triton's templates can index. Such a template has a guard that
    contradicts the bounds, so that the compile fails; a library's kernel has none. (Other bounds
    follow from guards and checks, and may become narrower.)"""
    m, n, _ = kernel_inputs.mnk_symbolic()
    shapes = kernel_inputs.shapes_symbolic()
    batch = [shape[0] for shape in shapes if len(shape) == 3][:1]
    env = V.graph.sizevars.shape_env
    elements = [sympy.Mul(*shape) for shape in (*shapes, (*batch, m, n))]
    if not any(each.free_symbols for each in elements):
        return False
    declared = _declared(env)
    for each in elements:
        if each.free_symbols and each.free_symbols <= declared:
            most = env.bound_sympy(each).upper
            if most.is_Integer and most > _MAX_INDEX:
                return True
    return False


def _declared(env: Any) -> set[sympy.Symbol]:
    """The symbols of the sizes for which the program declares bounds (mark_dynamic)."""
    return {
        size.node.expr
        for tracked in env.tracked_fakes or ()
        for size, bounds in zip(
            getattr(tracked.fake, "shape", ()),
            getattr(tracked.symbolic_context, "constraint_sizes", None) or (),
            strict=False,
        )
        if isinstance(size, torch.SymInt) and hasattr(bounds, "vr")
    }


@lru_cache(256)  # many layers of a program have the same ones
def _drawn(
    op_name: str,
    shapes: Sequence[Sequence[Any]],
    strides: Sequence[Sequence[Any]],
    bounds: Sequence[tuple[sympy.Symbol, int, int | None]],
    dtypes: Sequence[torch.dtype],
    out_dtype: torch.dtype,
    hinted: Problem,
    attributes: tuple[tuple[str, Scalar], ...],
    doubling: bool,
) -> tuple[Problem, ...]:
    most = [max(_USUAL, _BEYOND_HINT * size) for size in (hinted.B, hinted.M, hinted.N, hinted.K)]
    bounded = all(upper is not None for _, _, upper in bounds)
    found = {} if doubling else {hinted: None}
    for values in _draws([(least, upper) for _, least, upper in bounds], doubling=doubling):
        at = {
            symbol: sympy.Integer(value)
            for (symbol, _, _), value in zip(bounds, values, strict=True)
        }
        try:
            problem = problem_from(
                OPERATORS[op_name],
                _evaluated(shapes, at),
                _evaluated(strides, at),
                dtypes,
                out_dtype,
                attributes,
            )
        except (RecordError, TypeError, ValueError):  # the program would not run with these
            continue
        if problem is None:
            continue
        sizes = (problem.B, problem.M, problem.N, problem.K)
        if bounded or all(size <= limit for size, limit in zip(sizes, most, strict=True)):
            found[problem] = None
    return (hinted, *found) if doubling else tuple(found)


def _bounds(symbol: sympy.Symbol) -> tuple[int, int | None]:
    """The least and the largest value of a symbol; None where the program sets no limit."""
    ranges = V.graph.sizevars.shape_env.var_to_range.get(symbol)
    least, most = 1, None
    if ranges is not None:
        if ranges.lower.is_Integer:
            least = max(1, int(ranges.lower))
        if ranges.upper.is_Integer and int(ranges.upper) <= _MAX_SIZE:
            most = int(ranges.upper)
    return least, most


def _draws(bounds: Sequence[tuple[int, int | None]], *, doubling: bool = False) -> list[list[int]]:
    """Values of all symbols, one list for each problem: in ascending order for the first symbol, in
    other orders for the others, so that large and small values are combined."""
    grids = [_apart(least, most) for least, most in bounds]
    if doubling:
        grids[0] = _doubling(*bounds[0])
    return [
        [grid[i * _STEPS[place % len(_STEPS)] % len(grid)] for place, grid in enumerate(grids)]
        for i in range(max(map(len, grids)))
    ]


def _apart(least: int, most: int | None) -> list[int]:
    """Whole numbers from `least` to `most` that differ by equal factors."""
    # Without a limit, half of them are beyond the usual sizes, and are left out later.
    count, end = (2 * _VALUES, max(least, _MAX_SIZE)) if most is None else (_VALUES, most)
    ratio = (end / least) ** (1 / (count - 1))
    return list(dict.fromkeys(min(end, round(least * ratio**i)) for i in range(count)))


def _doubling(least: int, most: int | None) -> list[int]:
    """The limits, and between them the powers of two and the whole numbers halfway."""
    end = max(least, _MAX_SIZE) if most is None else most
    powers = [1 << n for n in range(end.bit_length())]
    halfway = [3 * power // 2 for power in powers[1:]]
    return sorted({least, end, *(n for n in (*powers, *halfway) if least < n < end)})


def _evaluated(rows: Any, at: dict[sympy.Symbol, sympy.Integer]) -> list[tuple[int, ...]]:
    return [
        tuple(int(x.xreplace(at)) if isinstance(x, sympy.Expr) else int(x) for x in row)
        for row in rows
    ]
