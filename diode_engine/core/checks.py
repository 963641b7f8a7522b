"""What records check of their fields, how they say what is wrong, and how they are read from
documents."""

from __future__ import annotations

import reprlib
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from diode_engine.errors import RecordError

_E = TypeVar("_E", bound=StrEnum)
_KINDS = {str: "a text", int: "a number", bool: "true or false", dict: "an object", list: "a list"}


def shown(value: object) -> str:
    """The value for an error message; a very long number is described, not written out."""
    if isinstance(value, int) and abs(value) > 2**64:
        return "a number of more than 64 bits"
    return repr(value)


def require(ok: bool, sentence: str) -> None:
    """Raises RecordError with the sentence where something is not `ok`. Records that are made by
    the thousand write out the `if`, so that a sentence with values is made only where it is
    needed."""
    if not ok:
        raise RecordError(sentence)


def is_int(value: object) -> bool:
    """Whether it is a whole number, which true and false are not here."""
    return isinstance(value, int) and not isinstance(value, bool)


def member(kind: type[_E], value: object, what: str) -> _E:
    """The member of an enumeration that has this value. Raises RecordError, with a sentence that
    begins with `what`, where there is none."""
    if type(value) is kind:
        return value
    try:
        return kind(str(value))
    except ValueError:
        known = ", ".join(kind)
        raise RecordError(f"{what} is {value!r}; it must be one of {known}.") from None


def decode(kind: Any, given: Any) -> Any:
    """Return the value of this type that `asdict` and JSON have made `given` of: a record, a
    mapping, a list or tuple, a number, a text, or one of these and None. A field that is missing
    has its default. Raises TypeError or ValueError where it is another."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return given
    if origin is UnionType:
        (kind,) = (each for each in inner if each is not NoneType)
        return None if given is None else decode(kind, given)
    if origin in (list, tuple):
        _check_kind(given, list, tuple)
        return origin(decode(inner[0], each) for each in given)
    if origin is not None or is_dataclass(kind):
        _check_kind(given, dict)
    if origin is not None:
        return {inner[0](key): decode(inner[1], each) for key, each in given.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        types, values = get_type_hints(kind), {}
        for field in fields(kind):
            if field.name in given:
                values[field.name] = decode(types[field.name], given[field.name])
            elif field.default is MISSING and field.default_factory is MISSING:
                raise TypeError(f"the field {field.name} is missing")
        return kind(**values)
    if kind in (int, float):
        _check_kind(given, int, float)
        return given
    _check_kind(given, bool if kind is bool else str)
    return kind(given)


def _check_kind(given: Any, *kinds: type) -> None:
    if type(given) not in kinds:
        raise TypeError(f"{reprlib.repr(given)} must be {_KINDS[kinds[0]]}")
