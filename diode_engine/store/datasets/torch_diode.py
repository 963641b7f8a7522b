"""torch-diode's files: its shapes, and its datasets, which are read and not written.

    {"hardware": {"NVIDIA H100": {"operation": {"mm": {"solution": {
        "{\\"B\\": 1, \\"M\\": 64, …}": {"timed_configs": [
            {"config": {"block_m": 64, "block_n": 32, …}, "time": 0.0251}, …]}}}}}}}

A shape is a text that holds JSON, and in older files a config is too. What a file does not say is
known from torch-diode's collector: operands are row-major without gaps, a bias is a whole matrix,
and the kernel is of Inductor's plain Triton template. Times are in milliseconds: Inductor measures
them so, and the collector passes them on (its documentation says otherwise).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import KNOWN, Environment, Hardware, find_name
from diode_engine.core.operand import Bias, DType
from diode_engine.core.operators import OPERATORS, find_operator
from diode_engine.core.operators.specification import dense
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.templates import templates_for
from diode_engine.core.timing import MAX_US, Timing
from diode_engine.documents import Malformed, shortened, show
from diode_engine.errors import RecordError
from diode_engine.store.datasets.parsing import MAX_TEXT, check_records, check_rows, items, mapping

_SIZES = ("B", "M", "N", "K")
_SHAPE = (*_SIZES, "M_dtype", "K_dtype", "out_dtype", "out_size", "out_stride")
_TILE = {"BLOCK_M": "block_m", "BLOCK_N": "block_n", "BLOCK_K": "block_k"}
_KWARGS = {**_TILE, "GROUP_M": "group_m", "num_stages": "num_stages", "num_warps": "num_warps"}

_Row = tuple[Problem, Candidate, Environment, Timing]


def is_dataset(document: Any) -> bool:
    """Whether the document has the form of a torch-diode dataset, valid or not."""
    return isinstance(document, dict) and "hardware" in document and "format" not in document


def read(document: Mapping[str, Any]) -> tuple[TimingTable, int]:
    """The timings, and how many were left out: those without a finite time, without a tile, or of a
    problem that Diode does not know (see `problem_fields`). Raises Malformed, with the place."""
    reader = _DocumentReader()
    return TimingTable.from_records(reader.rows(document)), reader.left_out


def problem_fields(op: str, shape: Any, place: str) -> dict[str, Any] | None:
    """The fields of a problem (see Problem.from_dict) that a shape gives. None where Diode has no
    such problem: another op or type, operands of two types, an output that is not row-major, or a
    size that is a symbol. Raises Malformed where it is not a shape."""
    fields = mapping(shape, place, needed=_SHAPE)
    size = items(fields["out_size"], f"{place}.out_size")
    stride = items(fields["out_stride"], f"{place}.out_stride")
    dtype, out = fields["M_dtype"], fields["out_dtype"]
    if (
        op not in OPERATORS
        or dtype not in tuple(DType)
        or out not in tuple(DType)
        or dtype != fields["K_dtype"]
        or any(isinstance(fields[name], str) for name in _SIZES)
        or not _row_major(size, stride)
    ):
        return None
    sizes = {name: fields[name] for name in _SIZES}
    return {"op": op, **sizes, "dtype": dtype, "out_dtype": out}


def _row_major(size: Sequence[Any], stride: Sequence[Any]) -> bool:
    """Whether these are the size and stride of a tensor without gaps whose last dimension is
    contiguous. The stride of a dimension of one element does not matter."""
    if len(size) != len(stride) or not all(type(n) is int for n in size):
        return False
    expected = dense(tuple(size))
    return all(n == 1 or step == own for n, step, own in zip(size, stride, expected, strict=True))


class _DocumentReader:
    """Reads the timings of one document, and counts those that are left out."""

    def __init__(self) -> None:
        self.left_out = 0
        self._rows = 0
        self._candidates: dict[Candidate, None] = {}

    def rows(self, document: Mapping[str, Any]) -> Iterator[_Row]:
        for name, entry in mapping(document["hardware"], "hardware").items():
            environment = Environment(_hardware(name), driver="", torch="", triton="")
            place = f"hardware.{name}"
            for op, operation in _entries(entry, place, "operation"):
                where = f"{place}.operation.{op}"
                solutions = list(_entries(operation, where, "solution"))
                check_records(solutions, "solutions")
                for i, (text, solution) in enumerate(solutions):
                    for problem, candidate, timing in self._solution(
                        op, text, solution, f"{where}.solution[{i}]"
                    ):
                        yield problem, candidate, environment, timing

    def _solution(
        self, op: str, text: str, solution: Any, place: str
    ) -> Iterator[tuple[Problem, Candidate, Timing]]:
        timed = items(mapping(solution, place).get("timed_configs"), f"{place}.timed_configs")
        self._rows += len(timed)
        check_rows(self._rows)
        fields = problem_fields(op, _from_text(text, place), place)
        if fields is None:
            self.left_out += len(timed)
            return
        template = next((t for t in templates_for(op) if t.tiled and not t.option), None)
        if template is None:
            self.left_out += len(timed)
            return
        try:
            if find_operator(op).biased:
                fields["bias"] = Bias.MATRIX
            problems = [Problem.from_dict({**fields, "allow_tf32": tf32}) for tf32 in (False, True)]
        except RecordError as error:
            raise Malformed(f"{place}: {shortened(str(error))}") from None
        for i, each in enumerate(timed):
            where = f"{place}.timed_configs[{i}]"
            given = mapping(each, where)
            us = _microseconds(given.get("time"), f"{where}.time")
            config = given.get("config")
            config = _from_text(config, where) if isinstance(config, str) else config
            kwargs, tf32 = _config(mapping(config, f"{where}.config"), f"{where}.config")
            if us is None or not all(kwargs[name] for name in _TILE):
                self.left_out += 1
            else:
                candidate = Candidate.make(template.name, **kwargs)
                self._candidates[candidate] = None
                check_records(self._candidates, "candidates")
                yield problems[tf32], candidate, Timing(median_us=us)


def _config(config: Mapping[str, Any], place: str) -> tuple[dict[str, int], bool]:
    """The kernel's kwargs, and whether it computes in TF32. Raises Malformed."""
    kwargs = {}
    for name, theirs in _KWARGS.items():
        value = config.get(theirs)
        if type(value) is not int or not 0 <= value < 2**31:
            raise Malformed(f"{place}.{theirs} is {show(value)}; it must be a whole number from 0.")
        kwargs[name] = value
    tf32 = config.get("ALLOW_TF32", False)
    if not isinstance(tf32, bool):
        raise Malformed(f"{place}.ALLOW_TF32 is {show(tf32)}; it must be true or false.")
    return kwargs, tf32


def _microseconds(ms: Any, place: str) -> float | None:
    """The time in microseconds; None where it is not finite, which means that the kernel failed.
    Raises Malformed."""
    if type(ms) is float and (math.isnan(ms) or ms == math.inf):
        return None
    if type(ms) not in (int, float) or not 0 < ms <= MAX_US / 1000:
        raise Malformed(
            f"{place} is {show(ms)}; it must be a positive number of milliseconds, an hour at most."
        )
    return float(ms * 1000)


def _hardware(name: str) -> Hardware:
    meant = find_name(name, KNOWN)
    if meant is None:
        raise Malformed(
            f"The hardware {show(name)} is not one that Diode knows by name ({', '.join(KNOWN)}), "
            "and the file does not say what a model must know of it; write the timings in Diode's "
            "own format, which does."
        )
    return KNOWN[meant]


def _entries(value: Any, place: str, name: str) -> Iterator[tuple[str, Any]]:
    """The items of the object that is the field `name` of an object."""
    fields = mapping(value, place, needed=(name,))
    yield from mapping(fields[name], f"{place}.{name}").items()


def _from_text(text: str, place: str) -> Any:
    if len(text) > MAX_TEXT:
        raise Malformed(f"{place}: {show(text)} is no shape or config: it is too long.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{place}: {show(text)} is not valid JSON: {error}.") from None
