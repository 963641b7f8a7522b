"""Changes of valid files, by a random generator: of bytes, of JSON-like documents, of TOML's text.

Each keeps the file small: tests/store/test_transfer.py has those that become large when read.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from typing import Any

import msgpack
import zstandard

NUMBERS = (
    0, -1, 1, 2, 255, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63),
    10**20, 10**4000, 1e308, 1e-308, -0.0, 0.5, float("nan"), float("inf"), -float("inf"),
)  # fmt: skip
TEXTS = (
    "", "mm", "addmm", "bmm", "float32", "float16", "row", "col", "timeout", "not_timed",
    "aten::mm",
    "triton::mm", "NVIDIA H200", "default", "../../x", "/etc/passwd", "x" * 300, "\x00", "\x1b[2J",
    "é", "\ud800", "日本", "nan", "1", "[" * 50, "{}", "https://example.invalid/x", "a" * 5000,
)  # fmt: skip
_EXTREMES = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\x7f", b"\xff" * 8, b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", b"\xff\xff\x7f\x7f",
    b"\x7f\x80\x00\x00", b"\xdd\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xc6\x40\x00\x00\x00",
    b'"', b"[", b"{", b"\\", b"\n", b".", b"=",
)  # fmt: skip


def changed_bytes(rng: random.Random, data: bytes, others: bytes = b"") -> bytes:
    """Flips, cuts, repeats, extremes, and pieces of another file."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(out) + 1)
        size = rng.choice((1, 2, 4, 8, 64, 512))
        kind = rng.randrange(7)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = out[at : at + size]
        elif kind == 4:
            piece = rng.choice(_EXTREMES)
            out[at : at + len(piece)] = piece
        elif kind == 5:
            out[at:at] = rng.randbytes(size)
        elif others:
            start = rng.randrange(len(others))
            out[at : at + size] = others[start : start + size]
    return bytes(out)


def junk(rng: random.Random, depth: int = 0) -> Any:
    """Any value that a document can hold."""
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return rng.randrange(-5, 200)
    if depth > 3:
        return []
    if kind == 7:
        return [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 8:
        return {rng.choice(TEXTS): junk(rng, depth + 1) for _ in range(rng.randrange(4))}
    return nested(rng, rng.choice((5, 40, 200, 600)))


def nested(rng: random.Random, depth: int) -> Any:
    """Lists and objects in each other."""
    value: Any = rng.choice(NUMBERS)
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def changed_document(rng: random.Random, document: Any) -> Any:
    """One to four places of the document hold something else, or are not there any more."""
    out = copied(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(out))
        if not places:
            return junk(rng)
        holder, key = rng.choice(places)
        kind = rng.randrange(9)
        value = holder[key]
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, copied(value))
        elif kind == 2 and isinstance(value, list) and value:
            holder[key] = value * rng.choice((2, 3, 100))
        elif kind == 3 and isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = holder.pop(key)
        elif kind == 4:
            other_holder, other = rng.choice(places)
            if not isinstance(other_holder, list) or other < len(other_holder):
                holder[key] = copied(other_holder.get(other) if isinstance(other_holder, dict)
                                     else other_holder[other])  # fmt: skip
        elif kind == 5 and isinstance(value, int):
            holder[key] = value + rng.choice((-1, 1, -value, 2**31, 2**63))
        elif kind == 6 and isinstance(value, str):
            holder[key] = value[: rng.randrange(len(value) + 1)] + rng.choice(TEXTS)
        else:
            holder[key] = junk(rng)
    return out


def copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: copied(inner) for name, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def _places(value: Any, depth: int = 0) -> Any:
    if depth < 30 and isinstance(value, dict | list):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from _places(inner, depth + 1)


def json_file(rng: random.Random, document: Any) -> bytes:
    """A changed document as JSON, or one with changed bytes."""
    by_bytes = rng.random() < 0.2
    given = document if by_bytes else changed_document(rng, document)
    text = json.dumps(given, ensure_ascii=rng.random() < 0.7)
    data = text.encode("utf-8", "surrogatepass")
    return changed_bytes(rng, data, data) if by_bytes else data


def msgpack_file(rng: random.Random, document: Any) -> bytes:
    """A changed document as msgpack, or one with changed bytes."""
    by_bytes = rng.random() < 0.3
    given = document if by_bytes else changed_document(rng, document)
    try:
        data = msgpack.packb(_packable(given), unicode_errors="surrogatepass")
    except ValueError:  # nested deeper than msgpack writes
        data = msgpack.packb(document)
    return changed_bytes(rng, data, data) if by_bytes else data


def _packable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _packable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_packable(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return 2**64 - 1
    return value


def compressed(rng: random.Random, data: bytes) -> bytes:
    """The data as a frame of Zstandard's, sometimes damaged."""
    out = zstandard.compress(data)
    return changed_bytes(rng, out, out) if rng.random() < 0.1 else out


_TOML = (
    "nan", "inf", "0x" + "f" * 5000, "1" * 5000, "[" * 400, "{a=" * 200, "1979-05-27T07:32:00Z",
    "07:32:00", "'''", '"""', '"\\ud800"', '"\\u0000"', "true", "[1, [2, [3]]]", "{a = 1, b = {}}",
    "0b1", "1e400", "-0", "''", "[]", "{}", "99999999999999999999", '"x"', "10", "\x00", "\ud7ff",
)  # fmt: skip


def toml_file(rng: random.Random, text: str) -> bytes:
    """The text with other values, keys and lines, sometimes with changed bytes."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        key, _, value = lines[at].partition("=")
        lines[at] = rng.choice((
            "", rng.choice(lines), f"{key}= {rng.choice(_TOML)}", f"{key}.b = {value}",
            f"{rng.choice(TEXTS)} = {value}", f"{key}= [{value}, {rng.choice(_TOML)}]",
        ))  # fmt: skip
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return changed_bytes(rng, data, data) if rng.random() < 0.3 else data


def safetensors_file(rng: random.Random, data: bytes) -> bytes:
    """The file with another header, or other bytes."""
    if rng.random() < 0.6:
        return changed_bytes(rng, data, data)
    size = int.from_bytes(data[:8], "little")
    header = json_file(rng, json.loads(data[8 : 8 + size]))
    length = rng.choice((len(header),) * 8 + (0, len(header) + 1, 2**63, 2**20 + 1))
    return struct.pack("<Q", length) + header + data[8 + size :]
