"""What goes between a collection and its workers, and comes to the store as columns."""

from multiprocessing.connection import Pipe

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Failure, KernelFacts, Timing
from diode_engine.inductor.lowering.kernel_class import shared_classes
from tests.samples import tile, timing_at

PROBLEM = Problem.make("mm", 64, 64, 64, "float16")
CANDIDATES = (
    Candidate.make("aten::mm"),
    tile(64, 64, 32),
    Candidate.make("decompose_k", k_split=2),
)
ENVIRONMENT = Environment(H200, "1", "2", "3")
TIMINGS = (
    Timing(min_us=1.5, median_us=2.0, spread_us=0.25, repeats=7),
    Timing(median_us=3.0, kernel=KernelFacts(32, 0, 8, 1024, 99)),
    Timing(failure=Failure.CRASH),
)


def sent(record):
    here, there = Pipe()
    here.send(record)
    return there.recv()


def test_records_are_sent_whole():
    classes = [cls for cls in shared_classes(PROBLEM, CANDIDATES) if cls is not None]
    assert [candidate.config for candidate in CANDIDATES]  # what it keeps is left here
    for record in (PROBLEM, CANDIDATES, ENVIRONMENT, TIMINGS, classes):
        assert sent(record) == record


def test_a_candidate_that_comes_again_is_the_same_object():
    first, second = sent(CANDIDATES), sent(CANDIDATES[::-1])
    assert all(a is b for a, b in zip(first, second[::-1], strict=True))


def test_a_value_that_is_equal_but_of_another_type_is_another_candidate():
    either = [Candidate.make("triton::mm", ALLOW=value) for value in (True, 1)]
    assert [candidate.key for candidate in sent(either)] == [each.key for each in either]
    assert either[0].key != either[1].key


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
