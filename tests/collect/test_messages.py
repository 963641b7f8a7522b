"""What goes between a collection and its workers, as bytes and as columns."""

from __future__ import annotations

import numpy as np
import pytest

from diode_engine.collect.cluster.messages import (
    RequestPacker,
    pack_timed,
    unpack_request,
    unpack_timed,
)
from diode_engine.collect.executor import Batch, Offer, Timed
from diode_engine.collect.gpu_state import GpuState
from diode_engine.collect.processes import protocol
from diode_engine.collect.timed_rows import as_table, timed_rows
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, KernelFacts, Timing
from diode_engine.inductor.lowering.kernel_class import shared_class

PROBLEM = Problem.make("mm", 64, 64, 64, "float16")
CANDIDATES = (
    Candidate.make("aten::mm"),
    Candidate.make("triton::mm", BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_stages=3, num_warps=4),
    Candidate.make("decompose_k", k_split=2),
)
ENVIRONMENT = Environment(H200, "1", "2", "3")
TIMINGS = (
    Timing(min_us=1.5, median_us=2.0, spread_us=0.25, repeats=7),
    Timing(median_us=3.0, kernel=KernelFacts(32, 0, 8, 1024, 99)),
    Timing(failure=Failure.CRASH),
)


def test_several_messages_may_come_as_one() -> None:
    said = [{"timing": 0, "reason": "é"}, {"done": True}]
    assert protocol.unpack_all(b"".join(map(protocol.pack, said))) == said


@pytest.mark.parametrize(
    "said",
    [b"", b"\xc1", b"\x01", protocol.pack({"done": True})[:-1], protocol.pack({"a": 1}) + b"\x81"],
)
def test_what_is_no_message_is_an_error_of_the_connection(said: bytes) -> None:
    with pytest.raises(OSError, match="no message"):
        protocol.unpack_all(said)


def test_candidates_are_unpacked_once() -> None:
    some, others = (protocol.pack_candidates(c) for c in (CANDIDATES, CANDIDATES[::-1]))
    first, second = protocol.unpack_candidates(some), protocol.unpack_candidates(others)
    assert first == CANDIDATES
    assert all(a is b for a, b in zip(first, second[::-1], strict=True))


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b + b"\0", lambda _: b"\x01"])
def test_candidates_that_are_damaged_are_refused(damage) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # msgpack's own words
        protocol.unpack_candidates(damage(protocol.pack_candidates(CANDIDATES)))


def test_a_request_to_a_cluster_comes_out_as_it_went_in() -> None:
    cls = shared_class(PROBLEM, CANDIDATES[1])
    assert cls is not None
    pack = RequestPacker()
    for request in (Offer(PROBLEM), Batch(PROBLEM, CANDIDATES), Batch(PROBLEM, CANDIDATES, (cls,))):
        assert unpack_request(pack(3, request)) == (3, request)
        assert pack(3, request) == RequestPacker()(3, request)  # whatever was packed before


@pytest.mark.parametrize("state", [None, GpuState(1980, None, 300, ("sw_power_cap",), 97, 1 << 30)])
def test_a_cluster_s_timings_come_out_as_they_went_in(state: GpuState | None) -> None:
    rows = timed_rows(enumerate(TIMINGS))
    packed = pack_timed(Timed(rows, 2, state, throttled=True, workers_lost=1))
    found = unpack_timed(packed)
    assert found is not None
    assert found.rows.tobytes() == rows.tobytes()
    assert (found.gpu, found.state, found.throttled, found.workers_lost) == (2, state, True, 1)
    for damaged in (packed[:-1], packed + b"\0", b"", b"\x01", protocol.pack({})):
        assert unpack_timed(damaged) is None


def test_timings_as_columns_say_what_they_said_one_by_one() -> None:
    rows = timed_rows([(2, TIMINGS[2]), (0, TIMINGS[0]), (1, TIMINGS[1])])
    table = as_table(PROBLEM, CANDIDATES, ENVIRONMENT, rows)
    assert {int(c): table.timing(i) for i, c in enumerate(table.candidate)} == dict(
        enumerate(TIMINGS)
    )
    assert len(as_table(PROBLEM, CANDIDATES, ENVIRONMENT, timed_rows([]))) == 0


def test_tables_are_joined_as_their_records_are() -> None:
    other = Problem.make("mm", 128, 64, 64, "float16")
    records = [
        [(PROBLEM, c, ENVIRONMENT, t) for c, t in zip(CANDIDATES, TIMINGS, strict=True)],
        [(other, CANDIDATES[2], ENVIRONMENT, TIMINGS[0]), (PROBLEM, CANDIDATES[0], ENVIRONMENT,
                                                           TIMINGS[2])],
        [],
    ]  # fmt: skip
    joined = TimingTable.joined([TimingTable.from_records(each) for each in records])
    whole = TimingTable.from_records([row for each in records for row in each])
    assert (joined.problems, joined.candidates) == (whole.problems, whole.candidates)
    assert joined.environments == whole.environments
    for name in ("problem", "candidate", "environment", "failure"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))
    assert [joined.timing(i) for i in range(5)] == [whole.timing(i) for i in range(5)]
