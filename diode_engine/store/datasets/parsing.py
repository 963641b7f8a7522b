"""Reads a file of timings as one document of lists and objects, from JSON or msgpack. Errors say
what is wrong, and where in the document."""

from __future__ import annotations

from collections.abc import Iterable, Set, Sized
from typing import Any

from diode_engine.documents import Limits, Malformed, load_json, show, unique

# What one dataset file may hold. The largest shipped one has 2.4 million timings of 8,651 problems
# by 3,296 candidates, in 45 MiB with 15,260 lists and objects. The largest one that is not packed
# has 621,027 values.
MAX_BYTES = 512 << 20  # after decompression
MAX_ROWS = 1 << 23  # timings; reading one takes 100 to 200 bytes
MAX_RECORDS = 1 << 18  # problems, candidates, environments; one takes about a kilobyte
MAX_CONTAINERS = 1 << 22  # lists and objects, 60 to 250 bytes each; torch-diode has two a timing
MAX_VALUES = 1 << 25  # in these, up to 60 bytes each: 5 million timings with all their columns
# Bytes of one text in msgpack, and of a text that holds JSON, as torch-diode's files have them
# (about 300 bytes for a shape).
MAX_TEXT = 1 << 16


def limits() -> Limits:
    """The limits of a dataset file."""
    return Limits(MAX_BYTES, MAX_CONTAINERS, MAX_VALUES)


def parse_json(data: bytes) -> tuple[Any, str | None]:
    """The document, and the first NaN or Infinity in it (not valid JSON, but Python writes them).
    Raises Malformed."""
    constants: list[str] = []

    def constant(name: str) -> float:
        constants[:] = constants or [name]
        return float(name)

    return load_json(data, limits(), constant), next(iter(constants), None)


def parse_msgpack(data: bytes) -> Any:
    """The document. Raises Malformed."""
    import msgpack

    containers = values = 0

    def counted(size: int) -> None:
        # Called when a list or object is complete: all that were made before are within the limits.
        nonlocal containers, values
        containers += 1
        values += size
        limits().check_counts(containers, values)

    def listed(value: list[Any]) -> list[Any]:
        counted(len(value))
        return value

    def mapped(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        counted(len(pairs))
        return unique(pairs)

    try:
        # A list's header may promise more items than follow, and msgpack allocates the promised
        # length. So first walk through the whole file without making anything.
        walker = msgpack.Unpacker(max_buffer_size=len(data) + 1)
        walker.feed(data)
        walker.skip()
        if walker.tell() != len(data):
            raise Malformed(f"Something follows its end at byte {walker.tell()}.")
        return msgpack.unpackb(
            data, list_hook=listed, object_pairs_hook=mapped, strict_map_key=True,
            max_array_len=MAX_ROWS, max_map_len=MAX_RECORDS, max_str_len=MAX_TEXT, max_ext_len=0,
        )  # fmt: skip
    except (msgpack.OutOfData, msgpack.UnpackException, ValueError, RecursionError) as error:
        if isinstance(error, msgpack.OutOfData):
            raise Malformed("It ends too early; get it again.") from None
        if isinstance(error, UnicodeDecodeError):
            raise Malformed("It holds a text that is not UTF-8.") from None
        raise Malformed(
            "It is not valid msgpack, nested too deeply, or has a list or text that is too long "
            f"({error or type(error).__name__})."
        ) from None


def check_rows(rows: Any) -> None:
    """Raises Malformed where a dataset has more timings than are read of one file."""
    if isinstance(rows, int) and rows > MAX_ROWS:
        raise Malformed(
            f"It has more than {MAX_ROWS:,} timings, the most that is read of one file; split it "
            "into several datasets."
        )


def check_records(records: Sized, name: str) -> None:
    """Raises Malformed where there are more of these than are read of one file."""
    if len(records) > MAX_RECORDS:
        raise Malformed(
            f"It has {len(records):,} {name}, and {MAX_RECORDS:,} are the most that are read of "
            "one file; split it into several datasets."
        )


def mapping(
    value: Any, place: str, known: Set[str] | None = None, needed: Iterable[str] = ()
) -> dict[str, Any]:
    """The value, which must be an object with the fields `needed`, and no others than `known`
    (None: any). Raises Malformed where it is not."""
    if not isinstance(value, dict):
        raise Malformed(f"{place} is {show(value)}; it must be an object.")
    if missing := [name for name in needed if name not in value]:
        raise Malformed(f"{place} lacks the field{'s' * (len(missing) > 1)} {', '.join(missing)}.")
    if known is not None and (unknown := sorted(set(value) - known, key=str)):
        raise Malformed(f"{place} has unknown fields: {', '.join(map(show, unknown[:5]))}.")
    return value


def items(value: Any, place: str) -> list[Any]:
    """The value, which must be a list. Raises Malformed where it is not."""
    if not isinstance(value, list):
        raise Malformed(f"{place} is {show(value)}; it must be a list.")
    return value
