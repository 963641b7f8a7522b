"""The fields that filter queries can name, of problems (PROBLEMS) and of runs (RUNS)."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from diode_engine.core.hardware import slug_of
from diode_engine.core.named_layers import NAMES, weights_of
from diode_engine.core.operand import SPELLINGS, Bias, DType, Layout
from diode_engine.core.operators import OPERATORS
from diode_engine.core.operators.specification import Attribute, Scalar, gemm_flops
from diode_engine.store import bulk, schema
from diode_engine.store.filter import BadValue, Condition, Language, QueryField
from diode_engine.store.runs import RunState

_MAX_INT = 2**63 - 1  # the store's integers have 64 bits
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _text(help_line: str, match: Callable[[str], Condition]) -> QueryField:
    """A text; `match` decides whether it must be equal to the query's value, contain it or begin
    with it."""
    return QueryField(help_line, lambda _, value: match(value))


def _choice(help_line: str, conditions: Mapping[str, Condition], *, shown: int = 0) -> QueryField:
    """One of a few values, each with its condition. The first `shown` values are listed (0: all);
    the others are other names for the same conditions."""

    def condition(comparison: str, value: str) -> Condition:
        try:
            return conditions[value.lower()]
        except KeyError:
            raise BadValue from None

    return QueryField(help_line, condition, tuple(conditions)[: shown or None])


def _number(help_line: str, column: Any, kind: type[int | float] = float) -> QueryField:
    """A number. Of a whole one the remainders can be compared, too."""

    def parse(value: str) -> float:
        try:
            number = kind(value)
        except ValueError:
            number = float("nan")
        if not abs(number) <= _MAX_INT:
            unknown = f"is no {'whole ' * (kind is int)}number"
            raise BadValue(unknown if number != number else "is too large")
        return number

    def condition(comparison: str, value: str) -> Condition:
        found: Condition = _COMPARE[comparison](column, parse(value))
        return found

    def remainder(divisor: int, value: str) -> Condition:
        found: Condition = column % divisor == parse(value)
        return found

    whole = remainder if kind is int else None
    return QueryField(help_line, condition, ordered=True, remainder=whole)


_whole = partial(_number, kind=int)


def _time(help_line: str, column: Any) -> QueryField:
    """A moment in UTC. A value in a query stands for a span of time: a year, month, day, minute or
    second."""

    def condition(comparison: str, value: str) -> Condition:
        first, behind = _stretch(value)
        if comparison == "=":
            return sa.and_(column >= first, column < behind)
        # Before and from the beginning, up to and after the end.
        found: Condition = {
            "<": column < first, "<=": column < behind, ">": column >= behind, ">=": column >= first
        }[comparison]  # fmt: skip
        return found

    return QueryField(help_line, condition, ordered=True)


def _model(value: str) -> Condition:
    """The condition that a problem is a product of a layer of a named model. The name consists of
    parts with dashes between them, and the value stands for all names that have its parts in its
    order: llama-7b for llama-2-7b, qwen2 for every qwen2."""
    pattern = ".*".join(rf"(?:^|-){re.escape(part)}(?=$|-)" for part in value.lower().split("-"))
    found = [name for name in NAMES if re.search(pattern, name)]
    if not found:
        raise BadValue("is not a name that Diode knows")
    return _layers(found)


def _attribute(of: Attribute, ops: Sequence[str]) -> QueryField:
    """An attribute, which only problems of some operators have. The store keeps it as JSON, and
    leaves out the usual value."""
    values = {} if isinstance(of.values, range) else {_shown(each): each for each in of.values}
    field = json.dumps(of.name) + ":"

    def condition(comparison: str, value: str) -> Condition:
        wanted = next((each for each in of.values if _shown(each) == value.lower()), None)
        if wanted is None:
            raise BadValue(f"is not {of.must_be}")
        if wanted == of.usual:
            return sa.and_(_P.op.in_(ops), sa.not_(_P.attributes.contains(field)))
        return sa.or_(
            *(_P.attributes.contains(field + json.dumps(wanted) + end) for end in (",", "}"))
        )

    return QueryField(f"of {', '.join(ops)}", condition, tuple(values))


def _shown(value: Scalar) -> str:
    """The value as it is written in a query."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _stretch(value: str) -> tuple[float, float]:
    """The beginning and the end of the span of time that a value stands for, in seconds since
    1970. Raises BadValue."""
    for form, length in (
        ("%Y-%m-%dT%H:%M:%S", timedelta(seconds=1)),
        ("%Y-%m-%dT%H:%M", timedelta(minutes=1)),
        ("%Y-%m-%d", timedelta(days=1)),
        ("%Y-%m", timedelta(days=31)),
        ("%Y", timedelta(days=366)),
    ):
        try:
            first = datetime.strptime(value.upper(), form).replace(tzinfo=UTC)
            behind = first + length
        except (ValueError, OverflowError):
            continue
        if length.days > 1:  # to the first of the next month, or year
            behind = behind.replace(day=1, month=1 if length.days > 31 else behind.month)
        return first.timestamp(), behind.timestamp()
    raise BadValue("is not a time")


# Problems: rows of `summaries` with their problems and environments

_P, _E, _S = schema.problems.c, schema.environments.c, schema.summaries.c
# The tables that the conditions of PROBLEMS are about. The joins are outer ones, since SQLite skips
# an outer join whose columns a query does not use. Foreign keys make the rows those of inner joins.
SUMMARIES = schema.summaries.outerjoin(schema.problems, _S.problem == _P.id).outerjoin(
    schema.environments, _S.environment == _E.id
)


def _dtypes(help_line: str, column: sa.Column[str]) -> QueryField:
    names: dict[str, tuple[DType, ...]] = {name: (each,) for name, each in SPELLINGS.items()}
    names["fp8"] = (DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2)
    conditions = {name: column.in_(map(str, dtypes)) for name, dtypes in names.items()}
    return _choice(help_line, conditions, shown=len(DType))


def _layouts() -> dict[str, Condition]:
    """A condition for each pair of layouts; * stands for any layout."""
    found: dict[str, Condition] = {}
    either = [*Layout, "*"]
    for a in either:
        for b in either:
            wanted = [c == x for c, x in ((_P.a_layout, a), (_P.b_layout, b)) if x != "*"]
            if wanted:
                found[f"{a}/{b}"] = sa.and_(*wanted)
    return found


def _layers(names: Sequence[str]) -> Condition:
    """The condition that a problem is a product of a layer of one of these models: the same as
    `named_layers.models_of`, in SQL."""
    ops: dict[frozenset[tuple[int, int]], list[str]] = {}
    for op in OPERATORS.values():
        ops.setdefault(frozenset().union(*(weights_of(n, op) for n in names)), []).append(op.name)
    conditions = []
    for weights, of_ops in ops.items():
        either = sorted({*weights, *((i, o) for o, i in weights)})
        sizes = ((_P.N, _P.K), (_P.M, _P.N))  # forward and the input's gradient; the weight's
        of_these = sa.or_(
            *(bulk.packed(*pair).in_([(a << 32) | b for a, b in either]) for pair in sizes)
        )
        if weights:
            conditions.append(sa.and_(_P.op.in_(of_ops), of_these))
    return sa.or_(*conditions)


def _contains(column: sa.Column[Any]) -> Callable[[str], Condition]:
    return lambda value: column.icontains(value, autoescape=True)


def _names_gpu(column: sa.Column[Any]) -> Callable[[str], Condition]:
    """The condition that a text is a part of a GPU's name, or of its slug."""
    slug = sa.func.replace(sa.func.lower(column), " ", "-")
    return lambda value: sa.or_(
        column.icontains(value, autoescape=True),
        slug.contains(slug_of(value) or value, autoescape=True),
    )


def _begins(column: sa.Column[Any]) -> Callable[[str], Condition]:
    return lambda value: column.istartswith(value, autoescape=True)


def _flops() -> Any:
    """The flops of a problem in SQL, as Problem.flops computes them."""
    sizes = {name: _P[name] for name in "BMNK"}
    others = [op for op in OPERATORS.values() if op.flops is not gemm_flops]
    own = [(_P.op == op.name, op.flops(sizes)) for op in others]
    return sa.case(*own, else_=gemm_flops(sizes))


def _attributes() -> dict[str, QueryField]:
    """The attributes of all ops, by name."""
    ops: dict[str, list[str]] = {}
    found: dict[str, Attribute] = {}
    for op in OPERATORS.values():
        for each in op.attributes:
            ops.setdefault(each.name, []).append(op.name)
            found.setdefault(each.name, each)
    return {name: _attribute(each, ops[name]) for name, each in found.items()}


def _spilling() -> Any:
    """How many kernels of a problem are known to spill registers."""
    sweep, kernel = schema.sweeps.alias(), schema.kernels.alias()
    return (
        sa.select(sa.func.count(kernel.c.candidate.distinct()))
        .select_from(sweep.join(kernel, kernel.c.sweep == sweep.c.id))
        .where(sweep.c.problem == _S.problem, sweep.c.environment == _S.environment)
        .where(kernel.c.spill_stores > 0, schema.is_finished(sweep.c.run))
        .correlate(schema.summaries)
        .scalar_subquery()
    )


FLOPS = _flops()
EFFICIENCY = _S.best_us / _S.aten_us

_SIZES = {
    "m": _whole("a whole number as in m<=64, m:64..512 or m%8!=0", _P.M),
    "n": _whole("a whole number as in n<=64, n:64..512 or n%8!=0", _P.N),
    "k": _whole("a whole number as in k<=64, k:64..512 or k%8!=0", _P.K),
}


def _size(comparison: str, value: str) -> Condition:
    found = (field.condition for field in _SIZES.values())
    return sa.or_(*(compare(comparison, value) for compare in found if compare is not None))


PROBLEMS = Language(
    {
        "op": _choice("the operator", {op: _P.op == op for op in OPERATORS}),
        "dtype": _dtypes("the operands' type", _P.dtype),
        "out": _dtypes("the output's type", _P.out_dtype),
        "b": _whole("the batch, a whole number as in b>1", _P.B),
        **_SIZES,
        "size": QueryField("one of M, N and K, as in size:2048", _size),
        "flops": _number("2·B·M·N·K, a number as in flops>1e9", FLOPS),
        "tf32": _choice(
            "whether TF32 is allowed", {"yes": _P.allow_tf32 == 1, "no": _P.allow_tf32 == 0}
        ),
        "layout": _choice("of the two operands", _layouts()),
        "align": _whole(
            "the lesser alignment of the two operands, as in align<8",
            sa.case((_P.a_align < _P.b_align, _P.a_align), else_=_P.b_align),
        ),
        "bias": _choice("the bias", {str(bias): _P.bias == str(bias) for bias in Bias}),
        "model": QueryField(
            "whose linear layers or experts they are, as in model:llama-7b",
            lambda _, value: _model(value),
            NAMES,
        ),
        "gpu": _text("a part of the GPU's name, as in gpu:h200", _names_gpu(_E.name)),
        "torch": _text("how the version begins, as in torch:2.13", _begins(_E.torch)),
        "triton": _text("how the version begins, as in triton:3.7", _begins(_E.triton)),
        "driver": _text("how the version begins, as in driver:570", _begins(_E.driver)),
        "id": _whole("the problem's number, as in id:17", _S.problem),
        "key": _text("how the problem's key begins", _begins(_P.key)),
        "candidates": _whole("how many were tried, as in candidates>100", _S.candidates),
        "failed": _whole("how many candidates failed, as in failed>0", _S.failed),
        "spills": _whole("how many kernels are known to spill registers, as in spills>0",
                         _spilling()),
        "timings": _whole("how many timings, as in timings>100", _S.timings),
        "best": _number("the best time in microseconds, as in best<10", _S.best_us),
        "aten": _number("ATen's time in microseconds, as in aten<10", _S.aten_us),
        "efficiency": _number("the best time divided by ATen's, as in efficiency<0.8", EFFICIENCY),
        **_attributes(),
    }
)  # fmt: skip

# Runs

_R = schema.runs.c

RUN_PROBLEMS = (
    sa.select(sa.func.count(schema.sweeps.c.problem.distinct()))
    .where(schema.sweeps.c.run == _R.id)
    .correlate(schema.runs)
    .scalar_subquery()
)
RUN_TIMINGS = (
    sa.select(sa.func.coalesce(sa.func.sum(schema.tallies.c.timings), 0))
    .where(schema.tallies.c.run == _R.id)
    .correlate(schema.runs)
    .scalar_subquery()
)


def _tagged(tag: str) -> Condition:
    t = schema.tags.c
    return sa.exists().where(t.run == _R.id, sa.func.lower(t.tag) == tag.lower())


def _on_gpu(name: str) -> Condition:
    t = schema.tallies.c
    return sa.exists().where(
        t.run == _R.id, t.environment == _E.id, _E.name.icontains(name, autoescape=True)
    )


RUNS = Language(
    {
        "state": QueryField("how it is", None, tuple(map(str, RunState))),
        "kind": _text("collect, train, validate, import, …", lambda value: (
            sa.func.lower(_R.kind) == value.lower()
        )),
        "tag": _text("one of its tags", _tagged),
        "note": _text("a part of its note", _contains(_R.note)),
        "message": _text("a part of its message", _contains(_R.message)),
        "spec": _text("a part of what it was asked for", _contains(_R.spec)),
        "id": _whole("its number, as in id>100", _R.id),
        "started": _time("a time in UTC, as in started>2026-11-01 or started:2026-11", _R.started),
        "finished": _time("a time in UTC, as in finished<2026-11-01T12:30", _R.finished),
        "problems": _whole("how many it has timings of, as in problems>100", RUN_PROBLEMS),
        "timings": _whole("how many it has, as in timings>0", RUN_TIMINGS),
        "gpu": _text("a part of the name of a GPU that it timed on", _on_gpu),
        "host": _text("a part of the name of the machine it ran on", _contains(_R.host)),
        "user": _text("a part of the name of who started it", _contains(_R.user)),
    }
)  # fmt: skip


def sweeps_found(query: str) -> Condition:
    """The condition, on a row of `sweeps`, that a query of PROBLEMS finds the row's problem in the
    row's environment. Raises QueryError."""
    found = (
        sa.select(_S.problem, _S.environment)
        .select_from(SUMMARIES)
        .where(*PROBLEMS.parse(query).conditions)
    )
    return sa.tuple_(schema.sweeps.c.problem, schema.sweeps.c.environment).in_(found)
