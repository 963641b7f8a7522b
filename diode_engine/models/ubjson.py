"""A reader of Universal Binary JSON for files that are not trusted. Each length is compared with
the bytes that are left, depth is limited, and every mistake is a ModelError.

XGBoost's own reader trusts its files; trees go through this reader first. Format:
https://ubjson.org, as far as XGBoost writes it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from diode_engine.documents import show
from diode_engine.errors import ModelError

_NUMBERS: dict[bytes, np.dtype[Any]] = {
    b"i": np.dtype(">i1"),
    b"U": np.dtype(">u1"),
    b"I": np.dtype(">i2"),
    b"l": np.dtype(">i4"),
    b"L": np.dtype(">i8"),
    b"d": np.dtype(">f4"),
    b"D": np.dtype(">f8"),
}
_INTEGERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}
_MAX_DEPTH = 16
# Outside of typed arrays, where a value takes up to 64 bytes of memory; 1,000 trees have 30,000.
_MAX_VALUES = 1 << 20


def loads(data: bytes) -> Any:
    """Objects as dict, typed arrays of numbers as numpy arrays, other arrays as list, texts as
    str. Raises ModelError where the bytes are anything but one whole value."""
    reader = _Reader(data)
    try:
        value = reader.value(reader.take(1), 0)
    except UnicodeDecodeError:
        raise ModelError("The trees' file holds a text that is not UTF-8.") from None
    if reader.place != len(data):
        raise ModelError("The trees' file has more bytes after its last value.")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0
        self.values = 0

    def take(self, size: int) -> bytes:
        end = self.place + size
        if size < 0 or end > len(self.data):
            raise ModelError("The trees' file is truncated or states a length it does not have.")
        piece = self.data[self.place : end]
        self.place = end
        return piece

    def peek(self) -> bytes:
        return self.data[self.place : self.place + 1]

    def count(self) -> int:
        form = _INTEGERS.get(self.take(1))
        if form is None:
            raise ModelError("The trees' file states a length that is not a whole number.")
        number: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        # Whatever is counted takes at least one byte each.
        if not 0 <= number <= len(self.data) - self.place:
            raise ModelError("The trees' file is truncated or states a length it does not have.")
        return number

    def text(self) -> str:
        return self.take(self.count()).decode()

    def value(self, marker: bytes, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ModelError("The trees' file is nested too deeply.")
        self.values += 1
        if self.values > _MAX_VALUES:
            raise ModelError(f"The trees' file holds more than {_MAX_VALUES:,} values.")
        if marker == b"{":
            return self.members(depth)
        if marker == b"[":
            return self.array(depth)
        if marker == b"S":
            return self.text()
        if marker in _NUMBERS:
            kind = _NUMBERS[marker]
            return np.frombuffer(self.take(kind.itemsize), kind)[0].item()
        if marker in (b"T", b"F"):
            return marker == b"T"
        raise ModelError(f"The trees' file holds an unknown marker {marker!r}.")

    def members(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while self.peek() != b"}":
            key = self.text()
            if key in out:
                raise ModelError(f"The trees' file repeats the key {show(key)}.")
            out[key] = self.value(self.take(1), depth + 1)
        self.take(1)
        return out

    def array(self, depth: int) -> Any:
        if self.peek() == b"$":
            self.take(1)
            kind = _NUMBERS.get(self.take(1))
            if kind is None or self.take(1) != b"#":
                raise ModelError("The trees' file holds a typed array of an unknown type.")
            return np.frombuffer(self.take(self.count() * kind.itemsize), kind)
        if self.peek() == b"#":
            self.take(1)
            return [self.value(self.take(1), depth + 1) for _ in range(self.count())]
        out = []
        while self.peek() != b"]":
            out.append(self.value(self.take(1), depth + 1))
        self.take(1)
        return out
