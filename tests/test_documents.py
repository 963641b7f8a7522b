"""Documents of strangers: what is over a limit, or no document, is refused before it is made."""

import os
import threading
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from diode_engine import documents
from diode_engine.documents import (
    Limits,
    Malformed,
    decompressed,
    parse_json,
    read_bytes,
    read_toml,
)

SMALL = Limits(bytes=1000, containers=10, values=20)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff", "not UTF-8 text at byte 0"),
        (b'{"a": 1, "a": 2}', "the field 'a' twice"),
        (b"[NaN]", "NaN, which is no JSON"),
        (b"[1e999]", "the number inf, which is not finite"),
        (b"[-1e999]", "the number -inf"),
        (b"[18446744073709551616]", "more than 64 bits"),
        (b"1" * 5000, "more than 1,000 bytes"),
        (b'["\\ud800"]', "not valid Unicode"),
        (b'["\\u0000"]', "a null character"),
        (b"[" * 11, "more than 10 lists and objects"),
        (b"[" + b"1," * 21 + b"1]", "more than 20 values"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_json_that_is_refused(text, sentence):
    with pytest.raises(Malformed, match=sentence):
        parse_json(text, SMALL)


@pytest.mark.parametrize("depth", [33, 100, 900, 100_000])
def test_json_nested_too_deeply(depth):
    wide = Limits(bytes=1 << 20)
    assert parse_json(b"[" * 32 + b"]" * 32, wide)
    for opened, closed in ((b"[", b"]"), (b'{"a":', b"}")):
        with pytest.raises(Malformed, match="nested too deeply"):
            parse_json(opened * depth + b"1" + closed * depth, wide)


def test_a_number_of_thousands_of_digits():
    with pytest.raises(Malformed, match="not valid JSON"):
        parse_json(b"1" * 5000, Limits(bytes=1 << 20))


def test_json_within_the_limits():
    assert parse_json('{"a": [1, -2.5, null, true, "é"]}'.encode(), SMALL) == {
        "a": [1, -2.5, None, True, "é"]
    }
    assert parse_json(b"[18446744073709551615]", SMALL) == [2**64 - 1]


def test_no_more_of_a_file_is_read_than_the_limit(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 1000)
    assert read_bytes(path, SMALL) == b"x" * 1000
    path.write_bytes(b"x" * 1001)
    with pytest.raises(Malformed, match="more than 1,000 bytes"):
        read_bytes(path, SMALL)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="more than 1,000 bytes"):
            read_bytes(Path("/dev/zero"), SMALL)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"x" * 900,))
    writer.start()
    assert read_bytes(path, SMALL) == b"x" * 900
    writer.join()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a", "not valid TOML"),
        ("a = " + "[" * 3000, "nested too deeply"),
        ("a = " + "{a=" * 3000, "nested too deeply"),
        ("a = " + "[" * 40 + "]" * 40, "nested too deeply"),
        ("a = 0x" + "f" * 5000, "more than 64 bits"),
        ("a = " + "1" * 5000, "not valid TOML"),
        ("a = nan", "the number nan"),
        ('a = "\\u0000"', "a null character"),
        ("a" + ".a" * 16 + " = 1", "a dotted key of more than 16 parts"),
        ("[a" + ' . "b"' * 16 + "]", "a dotted key of more than 16 parts"),
        ("a.'b'" * 60_000, "more than 262,144 bytes"),
        ("x" * 200_000, "not valid TOML"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_toml_that_is_refused(tmp_path, text, sentence):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(Malformed, match=sentence):
        read_toml(path)


def test_toml_within_the_limits(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("a.b.c = 'x.y.z'\n[d.e]\nf = [1, [2]]\n# 1. 2. 3. 4.\n")
    assert read_toml(path) == {"a": {"b": {"c": "x.y.z"}}, "d": {"e": {"f": [1, [2]]}}}
    path.write_bytes(b"\xff")
    with pytest.raises(Malformed, match="not UTF-8"):
        read_toml(path)


def test_a_compressed_file_may_become_so_large(monkeypatch):
    monkeypatch.setattr(documents, "FREE_BYTES", 100_000)
    large = Limits(bytes=1 << 30)
    assert decompressed(zstandard.compress(b"x" * 100_000), large) == b"x" * 100_000
    mixed = b"x" * 200_000 + os.urandom(4000)  # 51 times as large at its end, and more before
    assert decompressed(zstandard.compress(mixed), large) == mixed
    with pytest.raises(Malformed, match="more than 100 times as large"):
        decompressed(zstandard.compress(b"x" * 100_001), large)
    with pytest.raises(Malformed, match="more than 1,000 bytes"):
        decompressed(zstandard.compress(b"x" * 1001), SMALL)


def test_a_sentence_is_never_long():
    with pytest.raises(Malformed) as caught:
        parse_json(b'{"%b": NaN}' % (b"x" * 800), Limits(bytes=1 << 20))
    assert len(str(Malformed("x" * 10_000))) < 700
    assert "NaN" in str(caught.value)
