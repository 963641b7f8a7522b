"""What Inductor benchmarks finds its way into a store, and never into the compile's way."""

from __future__ import annotations

import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.errors import StoreError
from diode_engine.feedback import FeedbackWriter
from diode_engine.inductor.listening import feedback
from diode_engine.inductor.without_gpu import lower
from diode_engine.store import RunState, Store
from tests.inductor_nogpu.conftest import OPS, FixedPredictor, install

gemm = OPS["addmm"]


def milliseconds(candidate: Candidate) -> float:
    return 0.5 if candidate.is_extern else 0.25


@pytest.fixture(autouse=True)
def _nobody_else_listens(monkeypatch):
    monkeypatch.setattr(feedback, "_listeners", [])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "feedback.db"


@pytest.mark.parametrize("diode", [True, False])
def test_benchmarks_are_written(diode, path):
    if diode:
        install(FixedPredictor(), top_k_configs=3, performance_threshold=1e9)
    writer = FeedbackWriter(str(path))
    feedback.listen(writer.take)
    lower(gemm, benchmark=milliseconds)
    writer.close()
    with Store.open(path, read_only=True) as store:
        table = store.read()
        (run,) = store.runs()
    assert (run.kind, run.state) == ("feedback", RunState.DONE)
    assert table.problems == (Problem.make("addmm", 512, 768, 1024, "bfloat16", bias="vector"),)
    assert (len(table) == 3) == diode
    by_candidate = {
        table.candidates[c]: us for c, us in zip(table.candidate, table.time_us, strict=True)
    }
    assert by_candidate == {c: 1e3 * milliseconds(c) for c in by_candidate}
    assert set(by_candidate.values()) == {250.0, 500.0}


def test_a_store_that_cannot_be_written_costs_no_compile(path, caplog):
    path.write_text("hello " * 1000)
    writer = FeedbackWriter(str(path))
    feedback.listen(writer.take)
    for _ in range(2):
        assert lower(gemm, benchmark=milliseconds).sources
    writer.close()
    assert caplog.text.count("benchmarks are not kept") == 1
    assert path.read_text().startswith("hello")


def test_a_run_that_cannot_be_written_on_has_failed(path, monkeypatch):
    def full(self, run, table):
        raise StoreError("The disk is full; make room.")

    monkeypatch.setattr(Store, "add", full)
    writer = FeedbackWriter(str(path))
    writer.take(Problem.make("mm", 8, 8, 8, "float16"), [(Candidate.make("aten::mm"), 1.0)])
    writer.close()
    with Store.open(path, read_only=True) as store:
        (run,) = store.runs()
    assert (run.state, run.message) == (RunState.FAILED, "The disk is full; make room.")


def test_a_store_that_is_locked_does_not_hold_the_compile_up(path):
    with Store.open(path) as store, store.writes() as connection:
        connection.exec_driver_sql("UPDATE runs SET kind = kind")  # takes the lock
        writer = FeedbackWriter(str(path))
        feedback.listen(writer.take)
        assert lower(gemm, benchmark=milliseconds).sources  # returns while it is held
    writer.close()
    with Store.open(path, read_only=True) as store:
        assert len(store.read()) > 10
