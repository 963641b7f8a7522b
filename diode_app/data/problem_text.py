"""A problem on one line, as a person types it: `bmm 8 64 64 128 bf16 row/col`."""

from __future__ import annotations

from typing import Any

from diode_app.data.problem_columns import dtype, layout
from diode_engine.core.operand import DType, short_name
from diode_engine.core.operators import OPERATORS, Operator
from diode_engine.core.problem import Problem
from diode_engine.errors import RecordError

# What `name=value` may say of any problem, besides the attributes of its operator.
_FIELDS = ("bias", "a_align", "b_align", "out_dtype")
_TYPES = (*(t.short for t in DType), "tf32")


def write_problem(problem: Problem) -> str:
    """Return the problem on one line."""
    p = problem
    sizes = (p.B, p.M, p.N, p.K) if p.op.batched else (p.M, p.N, p.K)
    words = (str(p.op), *map(str, sizes), dtype(p), layout(p))
    usual, given = parse_problem(" ".join(words)).to_dict(), p.to_dict()
    rest = {name: given[name] for name in _FIELDS if given[name] != usual[name]}
    return " ".join((*words, *(f"{n}={v}" for n, v in {**rest, **dict(p.attributes)}.items())))


def parse_problem(given: str) -> Problem:
    """Return the inverse of `write_problem`; what is left out is as usual. Raises RecordError."""
    name, *words = given.replace("×", " ").split() or [""]
    if name not in OPERATORS:
        raise RecordError(f"{name or 'This'} is no operator; there are {', '.join(OPERATORS)}.")
    op = OPERATORS[name]
    sizes = [int(word) for word in words if word.isdecimal()]
    batch = sizes.pop(0) if op.batched and len(sizes) == 4 else 1
    if len(sizes) != 3:
        raise RecordError(f"give {'the batch, ' if op.batched else ''}M, N and K of the {op}.")
    m, n, k = sizes
    fields: dict[str, Any] = {}
    kind = str(DType.BFLOAT16 if DType.BFLOAT16 in op.dtypes else op.dtypes[0])
    for word in words:
        if short_name(word) in _TYPES:
            kind, fields["allow_tf32"] = word.replace("tf32", "float32"), word == "tf32"
        elif "=" in word:
            fields.update([_read_field(op, *word.split("=", 1))])
        elif "/" in word:
            fields["a_layout"], _, fields["b_layout"] = word.partition("/")
        elif not word.isdecimal():
            raise RecordError(f"{word} is no size, type or layout, such as 512, bf16 or row/col.")
    return Problem.make(op, m, n, k, kind, B=batch, **fields)


def _read_field(op: Operator, name: str, value: str) -> tuple[str, Any]:
    """Return the field with its value, which need not be a text."""
    known = {attribute.name: attribute.values for attribute in op.attributes}
    if name not in _FIELDS and name not in known:
        raise RecordError(f"{op} has no {name}; it has {', '.join((*_FIELDS, *known))}.")
    if name.endswith("_align") and value.isdecimal():
        return name, int(value)
    return name, next((each for each in known.get(name, ()) if str(each) == value), value)
