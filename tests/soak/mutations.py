"""Changes of valid files, by a random generator: of bytes, of JSON-like documents, of TOML's text.

Each keeps the file small, but for a few that are made to be large when they are read.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import numpy as np
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
    """A changed document as JSON, sometimes with a field twice, sometimes with changed bytes."""
    kind = rng.randrange(20)
    if kind == 0:
        return json_bomb(rng)
    given = document if kind < 4 else changed_document(rng, document)
    text = json.dumps(given, ensure_ascii=rng.random() < 0.7)
    data = text.encode("utf-8", "surrogatepass")
    if kind < 4:
        return changed_bytes(rng, data, data)
    start, end = data.find(b"{") + 1, data.find(b",", data.find(b"{"))
    if kind == 4 and 0 < start < end:
        data = data[:start] + data[start : end + 1] + data[start:]
    return data


def json_bomb(rng: random.Random) -> bytes:
    """Little that would become much: at most some hundred kilobytes."""
    n = rng.choice((100, 5_000, 30_000))
    return rng.choice((
        b"[" * n, b'{"a":' * n, b"[" + b"{}," * n + b"{}]", b'{"problems":[' + b"[]," * n + b"[]]}",
        b"1" * n, b"[" + b"1e999," * n + b"1]", b'"' + b"\\u0000" * n + b'"', b"-" * n,
        b'{"format":"diode-dataset","version":1,"timings":[' + b"{}," * n + b"{}]}",
        b"[" + b"NaN," * n + b"0]", b'{"hardware":' * 900 + b"1" + b"}" * 900, b"\xef\xbb\xbf{}",
        b"[" * 900 + b"]" * 900, b'{"shapes":[' + b"0," * n + b"0]}",
    ))  # fmt: skip


def msgpack_file(rng: random.Random, document: Any) -> bytes:
    """A changed document as msgpack, sometimes with changed bytes."""
    kind = rng.randrange(12)
    if kind == 0:
        n = rng.choice((400, 5_000, 100_000))
        return rng.choice((
            b"\x91" * n, b"\x81\xa1a" * n, b"\xdd\x00\x0f\xff\xff" * n, b"\xdd\xff\xff\xff\xff",
            b"\xdc\xff\xff" + b"\x80" * 65_535, b"\xdb\xff\xff\xff\xff",
            b"\xc9\xff\xff\xff\xff\x01",
            b"\x81\x80\x80", b"\xd4\x01\x00", b"\xd6\xff\x00\x00\x00\x01", b"\xdf\x00\x00\xff\xff",
        ))  # fmt: skip
    given = document if kind < 4 else changed_document(rng, document)
    try:
        data = msgpack.packb(_packable(given), unicode_errors="surrogatepass")
    except ValueError:  # nested deeper than msgpack writes
        data = msgpack.packb(document)
    return changed_bytes(rng, data, data) if kind < 4 else data


def _packable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _packable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_packable(inner) for inner in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return 2**64 - 1
    return value


def compressed(rng: random.Random, data: bytes) -> bytes:
    """The data as Zstandard's frames, sometimes damaged, and now and then far too much."""
    kind = rng.randrange(400)
    if kind == 0:
        return _compressed_bomb(rng, data)
    if kind < 8 and len(data) > 2:
        at = rng.randrange(1, len(data))
        return zstandard.compress(data[:at]) + zstandard.compress(data[at:])
    out = zstandard.compress(data)
    return changed_bytes(rng, out, out) if kind < 40 else out


def _compressed_bomb(rng: random.Random, data: bytes) -> bytes:
    piece = rng.choice((b" ", b"[", b"{},", b"\x90", b"0,", b"\xff", b"\x80"))
    frame = zstandard.ZstdCompressor().compressobj()
    out = frame.compress(rng.choice((b"", data[:100], b"[", b"\xdd\x00\x7f\xff\xff")))
    piece *= (1 << 20) // len(piece)
    for _ in range(rng.choice((3, 6, 12, 60, 600))):
        out += frame.compress(piece)
    return out + frame.flush()


_TOML = (
    "nan", "inf", "0x" + "f" * 5000, "1" * 5000, "[" * 400, "{a=" * 200, "1979-05-27T07:32:00Z",
    "07:32:00", "'''", '"""', '"\\ud800"', '"\\u0000"', "true", "[1, [2, [3]]]", "{a = 1, b = {}}",
    "0b1", "1e400", "-0", "''", "[]", "{}", "99999999999999999999", '"x"', "10", "\x00", "\ud7ff",
)  # fmt: skip
_TOML_LINES = (
    "a." * 8000 + "a = 1", "[" + "a." * 3000 + "a]", "[[step]]", "[step]", "[[[", "]", "= 1", "\r",
    '"" = 1', "keys.a = 'x'", "[keys]", "[collect]", "[data.problems]", "rows = 50", "\ufeff",
    "#" * 99, "store = 7", "run = 'collect'", "run = 'train \"'", "a = " + "[" * 3000,
    "a . a . a = 1",
)  # fmt: skip


def toml_file(rng: random.Random, text: str) -> bytes:
    """The text with other values, keys and lines, sometimes with changed bytes."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(lines):
            del lines[at]
        elif kind == 1 and at < len(lines):
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        elif kind == 2:
            lines.insert(at, rng.choice(_TOML_LINES))
        elif at < len(lines) and "=" in lines[at]:
            key, _, value = lines[at].partition("=")
            lines[at] = rng.choice((
                f"{key}= {rng.choice(_TOML)}", f"{rng.choice(TEXTS)} = {value}",
                f"{key}= [{value}, {rng.choice(_TOML)}]", f"{key}.b = {value}",
            ))  # fmt: skip
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return changed_bytes(rng, data, data) if rng.random() < 0.3 else data


def safetensors_file(rng: random.Random, data: bytes) -> bytes:
    """The file with another header, other values, or other bytes."""
    size = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + size], bytearray(data[8 + size :])
    kind = rng.randrange(4)
    if kind == 0:
        return changed_bytes(rng, data, data)
    if kind == 1:
        header = json_file(rng, json.loads(header))
        length = rng.choice((len(header),) * 8 + (0, len(header) + 1, 2**63, 2**20 + 1))
        return struct.pack("<Q", length) + header + bytes(body)
    for _ in range(rng.choice((1, 5, 50, len(body) // 4))):
        at = rng.randrange(max(1, len(body) // 4)) * 4
        value = rng.choice((0, 1e38, -1e38, 3e38, -3e38, 1e-44, 1, 50, -700, 900, 1e9, 2047, 1e20))
        if rng.random() < 0.02:
            value = rng.choice((float("nan"), float("inf")))
        body[at : at + 4] = struct.pack("<f", value)
    return struct.pack("<Q", size) + header + bytes(body[: (len(data) - 8 - size)])


def ubjson_file(rng: random.Random, document: Any, write: Callable[[Any], bytes]) -> bytes:
    """Changed trees in Universal Binary JSON."""
    if rng.random() < 0.3:
        data = write(document)
        return changed_bytes(rng, data, data)
    return write(_changed_arrays(rng, changed_document(rng, document)))


def _changed_arrays(rng: random.Random, document: Any) -> Any:
    arrays = [(h, k) for h, k in _places(document) if isinstance(h[k], np.ndarray)]
    for holder, key in rng.sample(arrays, min(len(arrays), rng.choice((0, 1, 1, 3)))):
        array = holder[key].copy()
        if len(array):
            value = rng.choice((0, -1, 1, 1e30, 3e38, 2**31 - 1, 7))
            if array.dtype.kind != "f":
                value = np.clip(value, np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
            array[rng.randrange(len(array))] = value
        holder[key] = rng.choice((array, array, array[:-1], np.append(array, array[:1])))
    return document


def write_ubjson(value: Any) -> bytes:
    """As XGBoost writes it."""
    if isinstance(value, dict):
        fields = (_length(str(k).encode("utf-8", "replace")) + write_ubjson(v)
                  for k, v in value.items())  # fmt: skip
        return b"{" + b"".join(fields) + b"}"
    if isinstance(value, np.ndarray):
        marker = {"i1": b"i", "u1": b"U", "i2": b"I", "i4": b"l", "i8": b"L", "f4": b"d",
                  "f8": b"D"}[value.dtype.str[1:]]  # fmt: skip
        swapped = value.astype(value.dtype.newbyteorder(">")).tobytes()
        return b"[$" + marker + b"#L" + struct.pack(">q", len(value)) + swapped
    if isinstance(value, list):
        return b"[" + b"".join(map(write_ubjson, value)) + b"]"
    if isinstance(value, str):
        return b"S" + _length(value.encode("utf-8", "replace"))
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, int):
        return b"L" + struct.pack(">q", max(-(2**63), min(2**63 - 1, value)))
    return b"D" + struct.pack(">d", value) if isinstance(value, float) else b"Z"


def _length(text: bytes) -> bytes:
    return b"L" + struct.pack(">q", len(text)) + text
