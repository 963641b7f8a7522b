"""Dataset files: exact both ways, anybody's, and refused with a sentence when malformed."""

from __future__ import annotations

import copy
import dataclasses
import json
import tracemalloc
from pathlib import Path

import hypothesis.strategies as st
import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import MAX_US, Failure, Timing
from diode_engine.errors import DatasetError
from diode_engine.store import (
    Store,
    dataset_key,
    export_dataset,
    import_dataset,
    read_dataset,
    write_dataset,
)
from diode_engine.store.datasets import parsing, reading, writing
from diode_engine.store.datasets.format import SUFFIXES
from tests.samples import timing_at
from tests.store.conftest import FOREIGN, as_rows, make_table, one_product

slow = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def write(path, document) -> None:
    """The document in the file's format, whatever it holds."""
    name = path.name.removesuffix(".zst")
    data = json.dumps(document).encode() if name.endswith("json") else msgpack.packb(document)
    path.write_bytes(zstandard.compress(data) if path.name.endswith(".zst") else data)


dims = st.integers(1, 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
candidates = st.builds(
    lambda template, kwargs: Candidate(template, tuple(kwargs.items())),
    texts,
    st.dictionaries(texts, scalars, max_size=3),
)
problems = st.builds(
    Problem.make,
    st.sampled_from(["mm", "addmm"]),
    dims,
    dims,
    dims,
    st.sampled_from(["float16", "float32", "int8"]),
    a_layout=st.sampled_from(["row", "col"]),
    b_align=st.sampled_from([None, 1, 16]),
    allow_tf32=st.booleans(),
)
times = st.floats(0, MAX_US, exclude_min=True)
timings = st.builds(
    lambda least, more, spread, repeats: Timing(
        least, None if more is None else max(least, more), spread, repeats
    ),
    times,
    st.none() | times,
    st.none() | times,
    st.none() | st.integers(1, 2**31 - 1),
) | st.builds(Timing, failure=st.sampled_from([f for f in Failure if f is not Failure.NOT_TIMED]))
environments = st.builds(Environment, st.just(H200), texts, texts, texts)
tables = st.lists(st.tuples(problems, candidates, environments, timings), max_size=12).map(
    TimingTable.from_records
)


@settings(slow, max_examples=40)
@given(table=tables, suffix=st.sampled_from([s for s in SUFFIXES if s != ".packed.zst"]))
def test_table_file_store_file_table_is_exact(tmp_path, table, suffix):
    path = tmp_path / f"a{suffix}"
    write_dataset(table, path)
    back = read_dataset(path)
    assert as_rows(back) == as_rows(table)
    assert (back.problems, back.candidates) == (table.problems, table.candidates)
    assert dataset_key(back) == dataset_key(table)
    (tmp_path / "d.db").unlink(missing_ok=True)
    with Store.open(tmp_path / "d.db") as store:
        import_dataset(store, path)
        exported = tmp_path / "b.msgpack"
        assert export_dataset(store, exported) == len(table)
        assert as_rows(read_dataset(exported)) == as_rows(store.read())
        assert sorted(map(repr, as_rows(store.read()))) == sorted(map(repr, as_rows(table)))


def to_the_nanosecond(table: TimingTable) -> TimingTable:
    def rounded(us):
        ns = np.rint(us * 1000)
        return np.where((ns == 0) & (us > 0), 1, ns) / 1000

    return dataclasses.replace(
        table,
        min_us=rounded(table.min_us),
        median_us=rounded(table.median_us),
        spread_us=rounded(table.spread_us),
    )


@settings(slow, max_examples=60)
@given(table=tables)
def test_a_packed_file_is_exact_to_the_nanosecond(tmp_path, table):
    path = tmp_path / "a.packed.zst"
    write_dataset(table, path)
    back = read_dataset(path)
    assert as_rows(back) == as_rows(to_the_nanosecond(table))
    assert (back.problems, back.candidates) == (table.problems, table.candidates)
    write_dataset(back, path)
    assert as_rows(read_dataset(path)) == as_rows(back)


def packed_document() -> dict:
    timing = Timing(min_us=7.0, median_us=8.0, repeats=9)
    return writing._document(one_product(*[timing] * 3), packed=True)


def numbers(size: int, *values: int) -> dict:
    data = np.array(values, f"<u{size}").view(np.uint8).reshape(-1, size).T.tobytes()
    return {"bytes": size, "data": data}


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("rows",), 4, "must have 4 numbers"),
        (("rows",), -1, "whole number from 0 up"),
        (("rows",), 2**62, "more than 8,388,608 timings"),
        (("failures",), ["gremlins"], "gremlins"),
        (("failures",), "timeout", "list of their names"),
        (("columns",), {}, "columns must be"),
        (("columns", "min_us"), b"", "bytes and data"),
        (("columns", "min_us", "bytes"), 3, "bytes"),
        (("columns", "min_us", "data"), b"1", "must have 3 numbers"),
        (("columns", "min_us"), numbers(8, 1, 2, 2**63), "out of range"),
        (("columns", "min_us"), numbers(1, 0, 9, 9), "min_us"),
        (("columns", "repeats"), numbers(8, 0, 0, 2**40), "31 bits"),
        (("columns", "problem"), numbers(1, 0, 0, 1), "points outside"),
        (("columns", "failure"), numbers(1, 0, 0, 77), "unknown reason"),
        (("columns", "failure"), numbers(1, 0, 0, 1), "both"),
        (("columns", "registers"), numbers(1, 0, 0, 1), "must have all of registers, .*, or none"),
    ],
)
def test_a_malformed_packed_file_is_refused(tmp_path, place, value, said):
    document = packed_document()
    inner = document["timings"]
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    if place == ("columns", "min_us") and said == "min_us":
        # the first has only a median then, so the differences to a least are no times
        document["timings"]["columns"]["median_us"] = numbers(1, 0, 0, 0)
        said = "neither|both"
    path = tmp_path / "a.packed.zst"
    write(path, document)
    with pytest.raises(DatasetError, match=said):
        read_dataset(path)


def test_a_packed_file_cannot_be_predicted_by_groups(tmp_path):
    path = tmp_path / "a.packed.zst"
    write(path, packed_document())
    with pytest.raises(DatasetError, match="keeps no groups"):
        reading.read_groups(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_somebody_elses_file_is_read_in_its_order(tmp_path, suffix):
    path = tmp_path / f"foreign{suffix}"
    write(path, FOREIGN)
    table = read_dataset(path)
    assert table.problems == (
        Problem.make("mm", 128, 256, 512, "float16"),
        Problem.make("baddbmm", 1, 7, 33, "float32", B=4, b_layout="col"),
    )
    assert table.candidates[0].kwargs == (("alpha", 0.5), ("stages", 3), ("swizzle", None))
    assert table.environments == (
        Environment(H200, "", "", ""),
        Environment(H200, "", "2.11.0", ""),
    )
    assert table.problem.tolist() == [1, 1, 0, 0, 0]
    assert table.candidate.tolist() == [1, 0, 0, 1, 1]
    assert table.environment.tolist() == [1, 1, 0, 0, 0]
    assert [timing_at(table, i) for i in range(5)] == [
        Timing(median_us=10.0),
        Timing(median_us=12.5),
        Timing(min_us=7.25, spread_us=0.0, repeats=5),
        Timing(failure=Failure.TIMEOUT),
        Timing(min_us=7.0, repeats=100),
    ]


def test_a_file_to_be_predicted_has_no_times(tmp_path):
    asked = copy.deepcopy(FOREIGN)
    asked["timings"] = [{"problem": 1, "environment": 0, "candidate": [1, 0]}]
    write(tmp_path / "ask.json", asked)
    with pytest.raises(DatasetError, match=r"Row 0 of timings\[0\] has neither a time"):
        read_dataset(tmp_path / "ask.json")
    table = read_dataset(tmp_path / "ask.json", times_required=False)
    assert table.candidate.tolist() == [1, 0]
    assert timing_at(table, 1) == Timing(failure=Failure.NOT_TIMED)
    write_dataset(table, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_bytes())["timings"] == asked["timings"]


def test_the_only_environment_need_not_be_named(tmp_path):
    document = copy.deepcopy(FOREIGN)
    del document["environments"][1]
    for group in document["timings"]:
        del group["environment"]
    write(tmp_path / "a.json", document)
    assert read_dataset(tmp_path / "a.json").environment.tolist() == [0] * 5


def change(*path_and_value):
    """The foreign document with one place changed, or taken away (...)."""
    *path, last, value = path_and_value
    document = copy.deepcopy(FOREIGN)
    place = document
    for step in path:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


MALFORMED = [
    ([], r"It is \[\]; it must be an object"),
    (change("format", "x"), "format is 'x'"),
    (change("version", 3), "version is 3 .* update Diode"),
    (change("version", True), "version is True"),
    (change("problems", ...), "It lacks the field problems"),
    (change("extra", 1), "unknown fields: 'extra'"),
    (change("problems", {}), "problems is {}; it must be a list"),
    (change("problems", 0, 5), r"problems\[0\] is 5; it must be an object"),
    (change("problems", 0, "M", ...), r"problems\[0\]: A problem lacks the fields M"),
    (change("problems", 0, "M", 0), r"problems\[0\]: A problem's M is 0"),
    (change("problems", 0, "M", 64.0), r"problems\[0\]: A problem's M is 64.0"),
    (change("problems", 0, "dtype", "f17"), r"problems\[0\]: A problem's dtype is 'f17'"),
    (change("problems", 0, "Q", 1), r"problems\[0\]: A problem has unknown fields: Q"),
    (change("candidates", 1, "template", ""), r"candidates\[1\]: A candidate's template"),
    (change("candidates", 0, "kwargs", "a", [1]), r"candidates\[0\]: A candidate's kwarg a"),
    (change("candidates", 0, "kwargs", 5), r"candidates\[0\]: A candidate's kwargs must"),
    (change("environments", 0, "hardware", "GTX 1"), "'GTX 1' is not one .* give its backend"),
    (change("environments", 0, "hardware", 7), r"environments\[0\]: Its hardware must be"),
    (change("environments", 1, "hardware", "l2_bytes", -1), r"environments\[1\]: .*l2_bytes"),
    (change("environments", 1, "hardware", "l2_bytes", 2**63), "l2_bytes is 9223372036854775808"),
    (change("environments", 0, "cuda", "12"), r"environments\[0\]: .*has unknown fields: cuda"),
    (change("timings", 1, "problem", 2), r"timings\[1\].problem is 2, and there are 2"),
    (change("timings", 1, "problem", -1), r"timings\[1\].problem is -1"),
    (change("timings", 1, "environment", 9), r"timings\[1\].environment is 9"),
    (change("timings", 1, "environment", ...), r"timings\[1\] lacks the field environment"),
    (change("timings", 0, "candidate", 1, 2), r"timings\[0\].candidate\[1\] is 2; .* 0 to 1"),
    (change("timings", 1, "candidate", 2, True), r"timings\[1\].candidate\[2\] is True"),
    (change("timings", 1, "candidate", 2, None), r"timings\[1\].candidate\[2\] is None"),
    (change("timings", 1, "candidate", 2, 10**18), r"timings\[1\].candidate\[2\] is 1000"),
    (change("timings", 1, "min_us", [1.0]), r"timings\[1\].min_us has 1 values .*candidate 3"),
    (change("timings", 1, "min_us", 3), r"timings\[1\].min_us is 3; it must be a list"),
    (change("timings", 1, "min_us", 0, "7"), r"timings\[1\].min_us\[0\] is '7'; .* positive"),
    (change("timings", 1, "min_us", 0, True), r"timings\[1\].min_us\[0\] is True"),
    (change("timings", 1, "min_us", 0, 0), r"timings\[1\].min_us\[0\] is 0"),
    (change("timings", 1, "min_us", 0, -1.5), r"timings\[1\].min_us\[0\] is -1.5"),
    (change("timings", 1, "min_us", 0, 4e9), r"timings\[1\].min_us\[0\] is 4000000000.0; .* hour"),
    (change("timings", 1, "median_us", [0.1, None, 9]), r"Row 0 of .* has a min_us larger"),
    (change("timings", 1, "spread_us", 0, -1), r"timings\[1\].spread_us\[0\] is -1"),
    (change("timings", 1, "repeats", 0, 1.5), r"timings\[1\].repeats\[0\] is 1.5"),
    (change("timings", 1, "repeats", 0, 2**31), r"timings\[1\].repeats\[0\] is 2147483648"),
    (change("timings", 1, "failure", 1, "tired"), r"timings\[1\].failure\[1\] is 'tired'; .*crash"),
    (change("timings", 1, "failure", 1, "not_timed"), r"timings\[1\].failure\[1\]"),
    (change("timings", 1, "failure", 1, []), r"timings\[1\].failure\[1\] is \[\]"),
    (change("timings", 1, "failure", 1, None), r"Row 1 of timings\[1\] has neither"),
    (change("timings", 1, "failure", 0, "crash"), r"Row 0 of timings\[1\] has a time and a fail"),
    (
        change("timings", 1, "registers", [None, 9, 9]),
        r"Row 1 of timings\[1\] has some of registers",
    ),
]


@pytest.mark.parametrize("suffix", [".json", ".msgpack"])
@pytest.mark.parametrize(("document", "sentence"), MALFORMED, ids=[s for _, s in MALFORMED])
def test_a_malformed_dataset_is_refused_with_its_place(tmp_path, document, sentence, suffix):
    path = tmp_path / f"bad{suffix}"
    write(path, document)
    with pytest.raises(DatasetError, match=sentence) as caught:
        read_dataset(path)
    assert str(caught.value).startswith(str(path))
    with Store.open(tmp_path / "d.db") as store:
        with pytest.raises(DatasetError):
            import_dataset(store, path)
        assert store.runs() == []


GOOD = json.dumps(FOREIGN).encode()
PACKED = msgpack.packb(FOREIGN)

BROKEN = [
    ("a.json", b"", "cut short"),
    ("a.json", GOOD[:-1], "cut short"),
    ("a.json", GOOD + b"x", "cut short|not valid"),
    ("a.json", GOOD.replace(b"7.25", b"NaN"), "It holds NaN"),
    ("a.json", GOOD.replace(b"7.25", b"-Infinity"), "It holds -Infinity"),
    ("a.json", GOOD.replace(b"7.25", b"1e999"), r"min_us\[0\] is inf"),
    ("a.json", GOOD.replace(b"7.25", b"1" + b"0" * 400), r"min_us\[0\] is 1000"),
    ("a.json", GOOD.replace(b"7.25", b"1" * 5000), "not valid JSON"),
    ("a.json", GOOD.replace(b'"K": 512', b'"K": 512, "K": 8'), "the field 'K' twice"),
    ("a.json", GOOD.replace(b"cutlass", b"\xff\xfe"), "not UTF-8 text at byte"),
    ("a.json", GOOD.replace(b"cutlass", b"\\ud800"), "not valid Unicode"),
    ("a.json", GOOD.replace(b'"K": 512', b'"\\ud800": 1'), r"unknown fields: \\ud800"),
    ("a.json", GOOD.replace(b'"K": 512', b'"\\u001b[2J": 1'), r"unknown fields: \\x1b\[2J"),
    ("a.json", b"[" * 200_000, "nested too deeply"),
    ("a.msgpack", b"", "ends too early"),
    ("a.msgpack", PACKED[:-1], "ends too early"),
    ("a.msgpack", PACKED + b"\xc0", "Something follows its end"),
    ("a.msgpack", PACKED.replace(b"cutlass", b"cut\xffass"), "not UTF-8"),
    ("a.msgpack", PACKED.replace(b"\xa1K", b"\xa1N"), "the field 'N' twice"),
    (
        "a.msgpack",
        msgpack.packb(change("timings", 1, "min_us", 0, float("nan"))),
        r"min_us\[0\] is nan",
    ),
    ("a.msgpack", b"\x91" * 5000 + b"\xc0", "nested too deeply"),
    ("a.msgpack", b"\x81\x01\x02", "not valid msgpack|must be a text"),
    ("a.msgpack", b"\x81\x90\x02", "not valid msgpack|must be a text"),
    ("a.msgpack", b"\x81\xc4\x01a\x02", "must be a text"),
    ("a.msgpack", b"\xc1", "not valid msgpack"),
    ("a.json.zst", GOOD, "not Zstandard data"),
    ("a.json.zst", b"", "middle of its compressed"),
    ("a.json.zst", zstandard.compress(GOOD)[:-1], "middle of its compressed"),
]


@pytest.mark.parametrize(
    ("name", "data", "sentence"), BROKEN, ids=[f"{n} {s}" for n, _, s in BROKEN]
)
def test_broken_bytes_are_refused_with_a_sentence(tmp_path, name, data, sentence):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DatasetError, match=sentence):
        read_dataset(tmp_path / name)


def test_frames_one_after_the_other_are_one_file(tmp_path):
    path = tmp_path / "a.json.zst"
    path.write_bytes(zstandard.compress(GOOD[:100]) + zstandard.compress(GOOD[100:]))
    assert len(read_dataset(path)) == 5


TOO_MUCH = {  # the file, what it becomes, the sentence, and the MiB that reading it may take
    "many objects, compressed": (
        "a.json.zst", lambda: zstandard.compress(b"[" + b"{}," * (8 << 20) + b"{}]"),
        "more than 100 times as large", 80,
    ),
    "many maps, compressed": (
        "a.msgpack.zst", lambda: zstandard.compress(b"\xdd\x01\x80\0\0" + b"\x80" * (24 << 20)),
        "more than 100 times as large", 80,
    ),
    "long bytes, compressed": (
        "a.packed.zst", lambda: zstandard.compress(b"\xc6\x01\x80\0\0" + b"\x01" * (24 << 20)),
        "more than 100 times as large", 80,
    ),
    "many objects": (
        "a.json", lambda: b"[" + b"{}," * (5 << 20) + b"{}]",
        "more than 4,194,304 lists and objects.*split it", 40,
    ),
    # 400 lists in each other that promise a million entries each, and a megabyte of entries
    "promised lengths": (
        "a.msgpack", lambda: b"\xdd\x00\x0f\xff\xff" * 400 + b"\xc0" * (1 << 20),
        "ends too early", 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_would_become_too_much_is_refused_before_it_is_made(tmp_path, what):
    name, make, sentence, most = TOO_MUCH[what]
    (tmp_path / name).write_bytes(make())
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=sentence):
            read_dataset(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < most << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.json", "a.msgpack", "a.json.zst", "a.msgpack.zst"])
@pytest.mark.parametrize(
    ("limit", "most", "sentence"),
    [
        ("MAX_BYTES", 300, "more than 300 bytes"),
        ("MAX_CONTAINERS", 20, "more than 20 lists and objects"),
        ("MAX_VALUES", 50, "more than 50 values"),
        ("MAX_ROWS", 4, "more than 4 timings"),
        ("MAX_RECORDS", 1, "It has 2 environments, and 1 are the most"),
    ],
)
def test_what_a_file_holds_is_limited(tmp_path, monkeypatch, name, limit, most, sentence):
    write(tmp_path / name, FOREIGN)
    assert len(read_dataset(tmp_path / name)) == 5
    monkeypatch.setattr(parsing, limit, most)
    with pytest.raises(DatasetError, match=f"{sentence}|too long"):
        read_dataset(tmp_path / name)


@pytest.mark.parametrize("suffix", [".json", ".msgpack", ".packed.zst"])
@pytest.mark.parametrize(
    "limit", ["MAX_BYTES", "MAX_CONTAINERS", "MAX_VALUES", "MAX_ROWS", "MAX_RECORDS"]
)
def test_nothing_is_written_that_is_over_a_limit(tmp_path, monkeypatch, limit, suffix):
    table = make_table(3, 3)
    if suffix == ".packed.zst" and limit in ("MAX_CONTAINERS", "MAX_VALUES"):
        pytest.skip("a packed file has few of them")
    monkeypatch.setattr(parsing, limit, 2)
    with pytest.raises(DatasetError, match="write the timings as several datasets"):
        write_dataset(table, tmp_path / f"a{suffix}")
    assert not list(tmp_path.glob("*a.*"))


def test_timings_that_are_all_alike_are_not_written_so_that_they_cannot_be_read(
    tmp_path, monkeypatch
):
    table = one_product(*[Timing(1.0)] * 9000)
    monkeypatch.setattr("diode_engine.documents.FREE_BYTES", 1000)
    with pytest.raises(DatasetError, match="100 times as large"):
        write_dataset(table, tmp_path / "a.msgpack.zst")
    write_dataset(table, tmp_path / "a.msgpack")
    assert len(read_dataset(tmp_path / "a.msgpack")) == 9000


def test_values_nested_deeply_are_refused_where_they_are_shown(tmp_path):
    document = change("problems", 0, "M", 0)
    for depth in (300, 600, 900):
        text = json.dumps(document).replace('"M": 0', '"M": ' + "[" * depth + "]" * depth)
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(DatasetError, match=r"nested too deeply|A problem's M is \[\["):
            read_dataset(tmp_path / "a.json")


# Writing


@pytest.mark.parametrize("name", ["a.csv", "a", "json", "a.zst"])
def test_an_unknown_suffix_is_refused(tmp_path, name):
    with pytest.raises(DatasetError, match=r"must end in \.json, \.msgpack"):
        write_dataset(make_table(), tmp_path / name)
    (tmp_path / name).touch()
    with pytest.raises(DatasetError, match=r"must end in \.json, \.msgpack"):
        read_dataset(tmp_path / name)


def test_what_could_not_be_read_is_not_written(tmp_path):
    table = one_product(Timing(1.0), candidate=Candidate("\ud800"))
    with pytest.raises(DatasetError, match="cannot carry"):
        write_dataset(table, tmp_path / "a.msgpack")
    assert not list(tmp_path.glob("*a.*"))


def test_missing_files_and_folders_are_sentences(tmp_path):
    with pytest.raises(DatasetError, match="There is no file"):
        read_dataset(tmp_path / "a.json")
    (tmp_path / "b.json").mkdir()
    with pytest.raises(DatasetError, match="cannot be read"):
        read_dataset(tmp_path / "b.json")
    with pytest.raises(DatasetError, match="cannot be written"):
        write_dataset(make_table(), tmp_path / "b.json")
    with pytest.raises(DatasetError, match="cannot be written"):
        write_dataset(make_table(), tmp_path / "none" / "a.json")


def test_the_example_of_the_documentation_is_read(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "dataset-format.md").read_text()
    example = text.split("```json\n")[1].split("```")[0]
    (tmp_path / "a.json").write_text(example)
    assert len(read_dataset(tmp_path / "a.json")) == 7
