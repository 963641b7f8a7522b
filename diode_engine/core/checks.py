"""What records check of their fields, and how they say what is wrong."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from diode_engine.errors import RecordError

_E = TypeVar("_E", bound=StrEnum)


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
