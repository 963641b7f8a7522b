"""What records check of their fields, how they say what is wrong, and how they are read from
documents."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from diode_engine.errors import RecordError

_E = TypeVar("_E", bound=StrEnum)
_KINDS = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    dict: "an object", tuple: "a list",
}  # fmt: skip


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
    """Return the value of this type that `encode` and JSON have made `given` of: a record, a
    mapping, a list or tuple, a number, a text, or one of these and None. A record's class may have
    a `from_dict` of its own. Raises RecordError, with the place, where it is another."""
    if kind is Any or type(given) is kind:
        return given
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (kind,) = (each for each in inner if each is not NoneType)
        return None if given is None else decode(kind, given)
    if origin in (list, tuple):
        _check_kind(given, list, tuple)
        return origin(_decode_at(f"[{i}]", inner[0], each) for i, each in enumerate(given))
    if origin is not None:
        _check_kind(given, dict)
        return {inner[0](key): decode(inner[1], each) for key, each in given.items()}
    if hasattr(kind, "from_dict"):
        _check_kind(given, dict)
        return kind.from_dict(given)
    if is_dataclass(kind):
        return decode_fields(kind, given)
    _check_kind(given, *((int, float) if kind is float else (kind if kind in _KINDS else str,)))
    return given if kind is float else kind(given)


def decode_fields(kind: Any, given: Any) -> Any:
    """Return the record of this class with these fields, as `decode` does for a class without a
    `from_dict`. A field that is missing has its default; fields that the class does not have are
    ignored."""
    _check_kind(given, dict)
    types, values = _types_of(kind), {}
    for field in fields(kind):
        if field.name in given:
            values[field.name] = _decode_at(field.name, types[field.name], given[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise RecordError(f"the field {field.name} is missing")
    return kind(**values)


def encode(value: Any) -> Any:
    """Return the value as JSON has it. A record's class may have a `to_dict` of its own."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return encode_fields(value)
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    return str(value) if isinstance(value, StrEnum) else value


def encode_fields(record: Any) -> dict[str, Any]:
    """Return a record's fields as JSON has them."""
    return {field.name: encode(getattr(record, field.name)) for field in fields(record)}


def check_not_negative(record: Any) -> None:
    """Raises RecordError where a number in the record's fields is negative."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, int | float) and value < 0:
            raise RecordError(f"{field.name}: {shown(value)} must not be negative")


_types_of = cache(get_type_hints)


def _decode_at(place: str, kind: Any, given: Any) -> Any:
    if type(given) is kind:
        return given
    try:
        return decode(kind, given)
    except (TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{place}: {error}") from None


def _check_kind(given: Any, *kinds: type) -> None:
    if type(given) not in kinds:
        raise RecordError(f"{reprlib.repr(given)} must be {_KINDS[kinds[-1]]}")
