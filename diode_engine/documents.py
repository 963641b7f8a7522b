"""Reading files that a stranger may have made: bytes, JSON and TOML.

What a file may hold is limited before objects are made of it: a compressed kilobyte can become 32
MiB, and three bytes of JSON can become an object of 64 bytes. The code that reads a kind of file
gives its `Limits`. Where a document is over them, or is malformed, Malformed is raised, and the
reader adds the file's name.
"""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diode_engine.errors import DiodeError, explain_os_error

MAX_DEPTH = 32  # lists and objects in each other; Diode's own documents have 8 at most
# Any compressed file may become FREE_BYTES large, and MAX_RATIO times as large as it is. Shipped
# datasets become 6 times as large, JSON of timings 10 times.
FREE_BYTES = 8 << 20
MAX_RATIO = 100
# The time of Python's tomllib grows with the square of a dotted key's parts. Diode's have 3.
MAX_KEY_PARTS = 16

_CHUNK = 1 << 16
_MAX_INT = 1 << 64  # a whole number in a document; Python writes no number of over 4,300 digits
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_WORD = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_WORD}(?:[ \t]*+\.[ \t]*+{_WORD}){{{MAX_KEY_PARTS}}}")


class Malformed(Exception):
    """A document cannot be used. The text is a sentence about "it" that says what is wrong, and
    where; it is cut where names in the document make it long."""

    def __str__(self) -> str:
        return shortened(super().__str__(), 600)


@dataclass(frozen=True)
class Limits:
    """The limits of a kind of document: its bytes (after decompression), how many lists and objects
    it may have, and how many values these may have together."""

    bytes: int
    containers: int = 1 << 17  # a small document: at most 30 MiB of them
    values: int = 1 << 20

    def check_bytes(self, size: int) -> None:
        """Raises Malformed where a document of `size` bytes is too large."""
        if size > self.bytes:
            raise Malformed(
                f"It holds more than {_binary(self.bytes)}, the most that is read of such a file; "
                "split it into several."
            )

    def check_counts(self, containers: int, values: int) -> None:
        """Raises Malformed where a document has too many lists and objects (`containers`), or too
        many `values` in them."""
        for found, most, what in (
            (containers, self.containers, "lists and objects"),
            (values, self.values, "values"),
        ):
            if found > most:
                raise Malformed(
                    f"It holds more than {most:,} {what}, the most that is read of such a file; "
                    "split it into several."
                )


# Settings and workflows, which people write by hand: some kilobytes.
TOML = Limits(bytes=256 << 10)


def _binary(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else f"{size:,} bytes"


def read_bytes(path: Path, limits: Limits) -> bytes:
    """The file's bytes. Of a file that is too large, hardly more than the limit is read. Raises
    Malformed and OSError."""
    parts: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        expected = os.fstat(file.fileno()).st_size  # 0 for a pipe
        limits.check_bytes(expected)
        while part := file.read(expected + _CHUNK):
            size += len(part)
            limits.check_bytes(size)
            parts.append(part)
            expected = 0
    return b"".join(parts)


def read_json(path: Path, limits: Limits) -> Any:
    """The document in a JSON file. Raises Malformed and OSError."""
    return parse_json(read_bytes(path, limits), limits)


def read_document(path: Path, limits: Limits, kind: type[DiodeError]) -> Any:
    """The document in a JSON file. Raises an error of this kind, with the file's name, where it
    cannot be read."""
    try:
        with explain_os_error(kind, f"{path} cannot be read"):
            return read_json(path, limits)
    except Malformed as error:
        raise kind(f"{path}: {error}") from None


def check_format(document: Any, name: str, version: int) -> None:
    """Raises Malformed where the document is not an object of the format of this name, or is of a
    newer version than this one."""
    if not isinstance(document, dict) or document.get("format") != name:
        raise Malformed(f'It must be an object with the format "{name}".')
    given = document.get("version")
    if type(given) is not int or given < 1:
        raise Malformed("It has no version.")
    if given > version:
        raise Malformed(
            f"It is of version {show(given)}, this Diode reads up to {version}; update Diode."
        )


def parse_json(data: bytes, limits: Limits) -> Any:
    """The document, checked by `check_values`. Raises Malformed, also where an object has a name
    twice."""
    limits.check_bytes(len(data))
    document = load_json(data, limits, _no_constant)
    check_values(document)
    check_texts(data, document)
    return document


def load_json(data: bytes, limits: Limits, constant: Callable[[str], float]) -> Any:
    """The document, whatever its values are; `constant` gives the value of NaN and Infinity. Raises
    Malformed where it is not JSON, has too many values, or an object has a name twice."""
    check_json_counts(data, limits)
    try:
        return json.loads(data.decode(), object_pairs_hook=unique, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise Malformed(f"It is not UTF-8 text at byte {error.start}.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # JSONDecodeError, or a number of thousands of digits
        raise Malformed(f"It is not valid JSON, or cut short: {error}.") from None


def check_json_counts(data: bytes, limits: Limits) -> None:
    """Raises Malformed where a JSON text has too many values. Brackets and commas inside strings
    are counted too, so the text need not be parsed."""
    containers = data.count(b"{") + data.count(b"[")
    limits.check_counts(containers, containers + data.count(b","))


def check_texts(data: bytes, document: Any) -> None:
    """Raises Malformed where a text of the JSON document is not valid Unicode: JSON can escape
    half a surrogate pair, which cannot be written to a file or a terminal."""
    if _SURROGATE.search(data):
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Malformed("It holds a text that is not valid Unicode.") from None


def check_values(document: Any) -> None:
    """Raises Malformed where lists and objects are nested too deeply, a number is not finite or too
    large, or a text has a null character."""
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str):
                if "\0" in value:
                    raise Malformed("It holds a text with a null character, which no path has.")
            elif isinstance(value, float) and not math.isfinite(value):
                raise Malformed(f"It holds the number {value}, which is not finite.")
            elif isinstance(value, int) and abs(value) >= _MAX_INT:
                raise Malformed("It holds a whole number of more than 64 bits.")
        if not inner:
            return
        level = inner
    raise _too_deep()


def read_toml(path: Path) -> dict[str, Any]:
    """The document in a TOML file, checked by `check_values`. Raises Malformed and OSError."""
    return parse_toml(read_bytes(path, TOML))


def parse_toml(data: bytes) -> dict[str, Any]:
    """The document in the bytes of a TOML file, checked by `check_values`. Raises Malformed."""
    import tomllib  # only where there is a file

    try:
        text = data.decode()
        if _LONG_KEY.search(text):
            raise Malformed(f"It has a dotted key of more than {MAX_KEY_PARTS} parts.")
        document = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise Malformed(f"It is not UTF-8 text at byte {error.start}.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise Malformed(f"It is not valid TOML: {shortened(str(error).rstrip('.'))}.") from None
    check_values(document)
    return document


def decompressed(data: bytes, limits: Limits) -> bytes:
    """The content of the Zstandard frames. Raises Malformed, also where it is over the limits.

    A chunk of `data` is decompressed in one step, and a kilobyte can become 32 MiB. So chunks are
    small: little is decompressed before the limits are checked.
    """
    import zstandard

    parts: list[bytes] = []
    size = 0
    frame: Any = None
    try:
        for start in range(0, len(data), 1024):
            chunk = data[start : start + 1024]
            while chunk:
                if frame is None:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                part = frame.decompress(chunk)
                chunk = b""
                parts.append(part)
                size += len(part)
                limits.check_bytes(size)
                check_ratio(size, len(data))
                if frame.eof:
                    chunk, frame = frame.unused_data, None
    except zstandard.ZstdError as error:
        raise Malformed(f"It is not Zstandard data, or damaged: {error}.") from None
    if frame is not None or not parts:
        raise Malformed("It ends in the middle of its compressed data; get it again.")
    return b"".join(parts)


def check_ratio(size: int, compressed: int) -> None:
    """Raises Malformed where a file of `compressed` bytes becomes `size` bytes, and that is more
    than it may (FREE_BYTES, MAX_RATIO)."""
    if size > max(FREE_BYTES, MAX_RATIO * compressed):
        raise Malformed(
            f"It becomes more than {MAX_RATIO} times as large when it is decompressed, as no "
            "measured timings do; if you trust it, decompress it with zstd first."
        )


def unique(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """The fields of an object. Raises Malformed where two have the same name, or a name is not a
    text."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if not isinstance(name, str):
            raise Malformed(f"It holds a field named {show(name)}; a name must be a text.")
        if name in fields:
            raise Malformed(f"It holds the field {show(name)} twice in one object.")
        fields[name] = value
    return fields


def show(value: Any) -> str:
    """A value in a sentence, cut where it is long."""
    return reprlib.repr(value)


def shortened(sentence: str, most: int = 300) -> str:
    """Text from a document as part of a sentence: cut where it is long, with escapes in place of
    control characters, which could change a terminal."""
    text = sentence if len(sentence) <= most else f"{sentence[:most]}…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _no_constant(name: str) -> float:
    raise Malformed(f"It holds {name}, which is no JSON.")


def _too_deep() -> Malformed:
    return Malformed(
        f"It is nested too deeply: more than {MAX_DEPTH} lists and objects in each other."
    )
