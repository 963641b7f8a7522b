"""A file of timings as one document of lists and objects, from JSON or msgpack, and what is wrong
with it as a sentence with the place."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from diode_engine.errors import NoSuchDatasetError

MAX_BYTES = 512 << 20  # of a dataset once decompressed: about 7 million timings as JSON


class Malformed(Exception):
    """What is wrong with a dataset, and where; who reads it adds the file's name."""


def load(path: Path, *, compressed: bool) -> bytes:
    """The file's bytes, decompressed. Raises Malformed, NoSuchDatasetError and OSError."""
    if not path.exists():
        raise NoSuchDatasetError(f"There is no file {path}; check its name.")
    with path.open("rb") as file:
        if compressed:
            return _decompress(iter(lambda: file.read(1024), b""))
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise _too_large()
        return file.read()


def _decompress(chunks: Iterable[bytes]) -> bytes:
    """The content of the frames. A compressed kilobyte can hold 32 MiB, so small chunks keep
    what is decompressed beyond MAX_BYTES small."""
    import zstandard

    parts: list[bytes] = []
    size = 0
    frame: Any = None
    try:
        for chunk in chunks:
            while chunk:
                if frame is None:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                part = frame.decompress(chunk)
                chunk = b""
                parts.append(part)
                size += len(part)
                if size > MAX_BYTES:
                    raise _too_large()
                if frame.eof:
                    chunk, frame = frame.unused_data, None
    except zstandard.ZstdError as error:
        raise Malformed(f"It is not Zstandard data, or damaged: {error}.") from None
    if frame is not None or not parts:
        raise Malformed("It ends in the middle of its compressed data; get it again.")
    return b"".join(parts)


def _too_large() -> Malformed:
    return Malformed(f"It holds more than {MAX_BYTES >> 20} MiB; split it into several datasets.")


def parse_json(data: bytes) -> tuple[Any, str | None]:
    """The document, and the first NaN or Infinity in it, which JSON has not and Python writes.
    Raises Malformed."""
    constants: list[str] = []

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        text = data.decode()
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=constant)
        return document, next(iter(constants), None)
    except UnicodeDecodeError as error:
        raise Malformed(f"It is not UTF-8 text at byte {error.start}.") from None
    except RecursionError:
        raise Malformed("It is nested too deeply for a dataset.") from None
    except ValueError as error:  # JSONDecodeError, or an int of thousands of digits
        raise Malformed(f"It is not valid JSON, or cut short: {error}.") from None


def parse_msgpack(data: bytes) -> Any:
    """The document. Raises Malformed."""
    import msgpack

    try:
        # A header may promise more than follows, and a list is made at its promised length:
        # so first walk through everything without making anything.
        walker = msgpack.Unpacker(max_buffer_size=len(data) + 1)
        walker.feed(data)
        walker.skip()
        if walker.tell() != len(data):
            raise Malformed(f"Something follows its end at byte {walker.tell()}.")
        return msgpack.unpackb(data, object_pairs_hook=_unique, strict_map_key=True)
    except (msgpack.OutOfData, msgpack.UnpackException, ValueError, RecursionError) as error:
        if isinstance(error, msgpack.OutOfData):
            raise Malformed("It ends too early; get it again.") from None
        if isinstance(error, UnicodeDecodeError):
            raise Malformed("It holds a text that is not UTF-8.") from None
        raise Malformed(
            f"It is not valid msgpack, or nested too deeply ({error or type(error).__name__})."
        ) from None


def _unique(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if not isinstance(name, str):
            raise Malformed(f"It holds a field named {show(name)}; a name must be a text.")
        if name in fields:
            raise Malformed(f"It holds the field {show(name)} twice in one object.")
        fields[name] = value
    return fields


def mapping(value: Any, place: str, known: set[str], needed: set[str]) -> None:
    """Raises Malformed unless it is an object of these fields."""
    if not isinstance(value, dict):
        raise Malformed(f"{place} is {show(value)}; it must be an object.")
    if missing := sorted(needed - set(value)):
        raise Malformed(f"{place} lacks the fields {', '.join(missing)}.")
    if unknown := sorted(set(value) - known, key=str):
        raise Malformed(f"{place} has unknown fields: {', '.join(map(show, unknown))}.")


def items(value: Any, place: str) -> list[Any]:
    """The value, a list. Raises Malformed."""
    if not isinstance(value, list):
        raise Malformed(f"{place} is {show(value)}; it must be a list.")
    return value


def show(value: Any) -> str:
    """A value in a sentence, cut where it is long."""
    return reprlib.repr(value)


def shortened(sentence: str) -> str:
    return sentence if len(sentence) <= 300 else f"{sentence[:300]}…"
