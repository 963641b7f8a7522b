"""Filter queries find what they say, and tell a mistake by its place."""

from __future__ import annotations

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from diode_engine.core.candidate import Candidate
from diode_engine.core.named_layers import models_of
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.errors import QueryError
from diode_engine.store import Store, schema
from diode_engine.store.fields import PROBLEMS, RUNS
from diode_engine.store.query import problems
from diode_engine.store.run_query import runs
from tests.store.conftest import ENVIRONMENT, make_table

_SIZES = (1, 7, 64, 96, 512, 4096, 11008)


def drawn_problems() -> list[Problem]:
    rng = np.random.default_rng(0)
    found = [
        Problem.make("mm", 100, 11008, 4096, "bfloat16", b_layout="col"),
        Problem.make("addmm", 4096, 11008, 77, "float16"),
        Problem.make("bmm", 100, 11008, 4096, "bfloat16"),
        Problem.make("mm", 33, 4096, 8960, "bfloat16"),
        Problem.make("mm", 33, 4096, 32000, "bfloat16"),  # the gradients of a head
        Problem.make("mm", 4096, 32000, 33, "bfloat16"),
        Problem.make("mm", 64, 64, 64, "float8_e4m3fn", out_dtype="bfloat16"),
        Problem.make("addmm", 64, 64, 64, "float32", bias="scalar", allow_tf32=True),
        Problem.make("grouped_mm_rows", 512, 5760, 2880, "bfloat16", B=32),
        Problem.make("scaled_grouped_mm_depth", 16384, 5120, 512, "float8_e4m3fn", B=16),
        Problem.make("mm", 512, 5760, 2880, "bfloat16"),  # not of groups
        Problem.make("mm", 33, 5120, 7168, "bfloat16"),
    ]
    for i in range(60):
        op = ("mm", "addmm", "bmm", "baddbmm")[i % 4]
        m, n, k = (int(size) for size in rng.choice(_SIZES, 3))
        found.append(
            Problem.make(
                op, m, n, k, ("float16", "bfloat16", "float32")[int(rng.integers(3))],
                B=1 if op in ("mm", "addmm") else int(rng.integers(1, 9)),
                a_layout=("row", "col")[int(rng.integers(2))],
                b_layout=("row", "col")[int(rng.integers(2))],
                allow_tf32=bool(rng.integers(2)),
            )
        )  # fmt: skip
    return list(dict.fromkeys(found))


PROBLEMS_THERE = drawn_problems()


@pytest.fixture(scope="module")
def store(place_of_module):
    """Each problem with ATen, and every second one with a kernel that is twice as fast."""
    rows = []
    for i, problem in enumerate(PROBLEMS_THERE):
        rows.append((problem, Candidate.make("aten::mm"), ENVIRONMENT, Timing(min_us=8.0)))
        if i % 2:
            kernel = Candidate.make("triton::mm", num_warps=4)
            rows.append((problem, kernel, ENVIRONMENT, Timing(min_us=4.0)))
    with Store.open(place_of_module) as opened:
        opened.add(opened.start_run("collect", {}), TimingTable.from_records(rows))
        yield opened


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        ("", lambda p: True),
        ("  op:mm   op:mm ", lambda p: p.op == "mm"),
        ("op:mm,BMM", lambda p: p.op in ("mm", "bmm")),
        ("-op:mm,bmm", lambda p: p.op not in ("mm", "bmm")),
        ("op!=mm -op!=addmm", lambda p: p.op == "addmm"),
        ("dtype:bf16", lambda p: p.dtype == "bfloat16"),
        ("dtype=fp8,half", lambda p: p.dtype in ("float8_e4m3fn", "float16")),
        ("out:bfloat16 -dtype:bf16", lambda p: p.out_dtype == "bfloat16" != p.dtype),
        ("m<=64", lambda p: p.M <= 64),
        ("M>64 n<4096 k>=7", lambda p: p.M > 64 and p.N < 4096 and p.K >= 7),
        ("m:7..96", lambda p: 7 <= p.M <= 96),
        ("m:1,64..96,11008", lambda p: p.M in (1, 64, 96, 11008)),
        ("m!=7..96", lambda p: not 7 <= p.M <= 96),
        ("k%8!=0", lambda p: p.K % 8 != 0),
        ("k%8==0", lambda p: p.K % 8 == 0),
        ("-k%32:0,7", lambda p: p.K % 32 not in (0, 7)),
        ("size:4096", lambda p: 4096 in (p.M, p.N, p.K)),
        ("-size:64,7", lambda p: not {64, 7} & {p.M, p.N, p.K}),
        ("b>1", lambda p: p.B > 1),
        ("flops>1e9", lambda p: p.flops > 1e9),
        ("tf32:yes", lambda p: p.allow_tf32),
        ("tf32:no dtype:fp32", lambda p: p.dtype == "float32" and not p.allow_tf32),
        ("layout:row/col", lambda p: (p.a.layout, p.b.layout) == ("row", "col")),
        ("layout:*/col,col/row", lambda p: p.b.layout == "col" or p.a.layout == "col"),
        ("align<8", lambda p: min(p.a.align, p.b.align) < 8),
        ("bias:scalar,matrix", lambda p: p.bias in ("scalar", "matrix")),
        ("model:llama-7b", lambda p: "llama-2-7b" in models_of(p)),
        ("model:qwen2", lambda p: any(name.startswith("qwen2-") for name in models_of(p))),
        ("-model:llama,qwen2", lambda p: not any("llama" in n or "qwen2-" in n
                                                  for n in models_of(p))),
        ("model:gpt-oss-20b", lambda p: "gpt-oss-20b" in models_of(p)),
        ("model:llama-4", lambda p: "llama-4-scout" in models_of(p)),
        ("gpu:h200", lambda p: True),
        ('gpu:"nvidia h",a100 torch:2.13 triton:3 driver:570.1', lambda p: True),
        ("gpu:nvidia-h200", lambda p: True),
        ("gpu:h100", lambda p: False),
        ("gpu:nvidia-h100", lambda p: False),
        ("gpu:%", lambda p: False),
        ("torch:13", lambda p: False),
        ("key:" + PROBLEMS_THERE[3].key[:8], lambda p: p.key == PROBLEMS_THERE[3].key),
        ("id:1", lambda p: p == PROBLEMS_THERE[0]),
        ("efficiency<0.8", lambda p: PROBLEMS_THERE.index(p) % 2 == 1),
        ("best<=4 aten=8 candidates=2 timings=2 failed=0",
         lambda p: PROBLEMS_THERE.index(p) % 2 == 1),
        ("gpu:\"'; DROP TABLE runs; --\"", lambda p: False),
    ],
)  # fmt: skip
def test_a_query_finds_what_it_says(store, query, holds):
    expected = {p.key for p in PROBLEMS_THERE if holds(p)}
    assert {row.problem.key for row in problems(store, query)} == expected


@pytest.mark.parametrize(
    ("query", "sentence", "marked"),
    [
        ("op:mm dtyp:bf16", "no field dtyp (character 7); the fields are op, dtype, out", "dtyp"),
        ("op:mm mm", "mm is not a term; a term is a field", "mm"),
        ("op", "op lacks a comparison and a value", "op"),
        ("m<=64 op:", "op: lacks a value (character 10); op can be mm, addmm", "op:"),
        ("op:mm,,bmm", "lacks a value (character 7)", "op:mm,"),
        ("op:mm,zz", "zz is not a known op (character 7); op can be mm, addmm, bmm", "zz"),
        ("op<mm", "op can be compared with : and != only", "op<mm"),
        ("m<=many", "many is no whole number (character 4); m is a whole number as in", "many"),
        ("m<=1.5", "1.5 is no whole number", "1.5"),
        ("m<99999999999999999999", "is too large", "99999999999999999999"),
        ("m:1..x", "1..x is no whole number", "1..x"),
        ("m<1,2", "< takes one value", "m<1,2"),
        ("efficiency<nan", "nan is no number (character 12)", "nan"),
        ("efficiency%2=0", "efficiency takes no %", "efficiency%2=0"),
        ("k%0=0", "0 cannot divide k", "k%0=0"),
        ("k%x=0", "x cannot divide k", "k%x=0"),
        ("k%8<2", "k takes no %", "k%8<2"),
        ('op:mm gpu:"h', "A quotation is not closed (character 11)", '"h'),
        ("model:gpt-5", "gpt-5 is not a name that Diode knows", "gpt-5"),
        ("layout:row", "row is not a known layout (character 8); layout can be row/row", "row"),
    ],
)
def test_a_mistake_is_told_with_its_place(query, sentence, marked):
    with pytest.raises(QueryError) as caught:
        PROBLEMS.parse(query)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")
    assert query[caught.value.start : caught.value.end] == marked


@given(st.text() | st.lists(st.sampled_from([*'opmk:<>=!%-", 8.']), max_size=12).map("".join))
def test_any_text_is_a_query_or_a_mistake_within_it(text):
    try:
        PROBLEMS.parse(text)
    except QueryError as error:
        assert 0 <= error.start < error.end <= len(text)  # noqa: PT017
    for cursor in range(len(text) + 1):
        done = PROBLEMS.suggest(text, cursor)
        assert 0 <= done.start <= done.end <= len(text)


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("dt|", ["dtype:"]),
        ("op:mm -dt|", ["op:mm -dtype:"]),
        ("op:a|", ["op:addmm"]),
        ("op:mm,b| m<3", ["op:mm,bmm m<3", "op:mm,baddbmm m<3"]),
        ("tf32:|", ["tf32:yes", "tf32:no"]),
        ("k|", ["k:", "k<=", "k>=", "k<", "k>", "k%8=0", "k%8!=0"]),
        ("flops|", ["flops:", "flops<=", "flops>=", "flops<", "flops>"]),
        ("gpu:nv|", ['gpu:"NVIDIA H200"']),
        ("driver:|", []),
        ("zz|", []),
        ("zz:|", []),
        ("k%8|", []),
        ("k%8=|", []),
    ],
)
def test_what_could_be_typed_next_is_suggested(text, completed):
    cursor = text.index("|")
    text = text.replace("|", "")
    done = PROBLEMS.suggest(text, cursor, {"gpu": ["NVIDIA H200"]})
    assert [text[: done.start] + c + text[done.end :] for c in done.choices] == completed


def test_an_empty_query_suggests_every_field():
    assert [c.rstrip(":") for c in PROBLEMS.suggest("", 0).choices] == list(PROBLEMS.fields)


def test_what_is_suggested_is_understood():
    for language in (PROBLEMS, RUNS):
        for name, field in language.fields.items():
            for choice in field.choices:
                language.parse(f"{name}:{choice}")


# Runs


@pytest.fixture
def runs_there(place):
    """1: a collection of 3 problems, 2: a training with tags and a note, 3: an import of 60."""
    with Store.open(place) as opened:
        opened.add(opened.start_run("collect", {"seed": 7}), make_table())
        opened.finish_run(1, "failed", "The GPU fell off the bus")
        opened.start_run("train", {"family": "trees"})
        opened.tag(2, "paper", "H200/v2")
        opened.set_note(2, "the good one")
        opened.import_table(make_table(60, 3, first=100), key="k", spec={"file": "a.json"})
        with opened.writes() as connection:
            for run, moment in ((1, 1793491199.9), (2, 1793491200.0), (3, 1793577600.0)):
                update = sa.update(schema.runs).where(schema.runs.c.id == run)
                connection.execute(update.values(started=moment))
                # 2026-10-31 at its very end, 2026-11-01 and 2026-11-02 at their beginnings
        yield opened


FOUND = {
    "": [3, 2, 1],
    "kind:TRAIN,import": [3, 2],
    "tag:paper": [2],
    "tag:h200/v2 -tag:paper": [],
    "-tag:paper": [3, 1],
    'note:"GOOD one"': [2],
    "message:gpu": [1],
    "spec:a.json": [3],
    "id:1..2": [2, 1],
    "problems>3": [3],
    "problems:0": [2],
    "timings>=15": [3, 1],
    "gpu:h200": [3, 1],
    "started:2026-11-01": [2],
    "started>2026-11-01": [3],
    "started>=2026-11-01": [3, 2],
    "started<2026-11-01": [1],
    "started<=2026-11-01": [2, 1],
    "started:2026-11": [3, 2],
    "started:2026": [3, 2, 1],
    "started:2026-10..2026-11-01T00:00": [2, 1],
    "started:2026-11-02T00:00:00": [3],
    "finished>2020": [3, 1],
    "state:failed": [1],
    "state:done,failed": [3, 1],
    "state:dead": [2],  # all that have not ended: only `diode_engine.runs` can tell
    "-state:dead,failed": [3, 2],
    "state!=done state!=failed": [2],
    "state:done state:failed": [],
}


def test_queries_find_runs(runs_there):
    assert {query: [run.id for run in runs(runs_there, query)] for query in FOUND} == FOUND


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("state:lost", "lost is not a known state (character 7); state can be queued, running"),
        ("state<done", "state can be compared with : and != only"),
        ("started>2026-13", "2026-13 is not a time (character 9); started is a time in UTC, as in"),
        ("started:9999", "9999 is not a time"),
        ("op:mm", "There is no field op (character 1); the fields are state, kind, tag"),
    ],
)
def test_mistakes_about_runs(query, sentence):
    with pytest.raises(QueryError) as caught:
        RUNS.parse(query)
    assert sentence in str(caught.value)
