"""What goes between a collection and its workers, as bytes and as columns."""

import numpy as np
import pytest

from diode_engine.collect.processes import protocol
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, KernelFacts, Timing
from tests.samples import timing_at

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


def test_several_messages_may_come_as_one():
    said = [{"timing": 0, "reason": "é"}, {"done": True}]
    assert protocol.unpack_all(b"".join(map(protocol.pack, said))) == said


@pytest.mark.parametrize(
    "said",
    [b"", b"\xc1", b"\x01", protocol.pack({"done": True})[:-1], protocol.pack({"a": 1}) + b"\x81"],
)
def test_what_is_no_message_is_an_error_of_the_connection(said):
    with pytest.raises(OSError, match="no message"):
        protocol.unpack_all(said)


def test_candidates_are_unpacked_once():
    some, others = (protocol.pack_candidates(c) for c in (CANDIDATES, CANDIDATES[::-1]))
    first, second = protocol.unpack_candidates(some), protocol.unpack_candidates(others)
    assert first == CANDIDATES
    assert all(a is b for a, b in zip(first, second[::-1], strict=True))


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b + b"\0", lambda _: b"\x01"])
def test_candidates_that_are_damaged_are_refused(damage):
    with pytest.raises(ValueError):  # noqa: PT011  # msgpack's own words
        protocol.unpack_candidates(damage(protocol.pack_candidates(CANDIDATES)))


def test_tables_are_joined_as_their_records_are():
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
    assert [timing_at(joined, i) for i in range(5)] == [timing_at(whole, i) for i in range(5)]
