"""BLAS on one thread, for as long as it is asked."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from diode_engine.models.blas import one_thread
from diode_engine.models.predictor import Predictor


def threads() -> set[int]:
    """Of numpy's BLAS; SciPy may have one of its own, which nobody ranks with."""
    return {
        pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and "scipy.libs" not in pool["filepath"]
    }


@pytest.fixture(autouse=True)
def two_threads() -> object:
    with threadpool_limits(2, user_api="blas") as limits:
        if threads() != {2}:
            pytest.skip("BLAS has no threads here")
        yield limits


def test_as_many_as_before_afterwards() -> None:
    with one_thread():
        assert threads() == {1}
    assert threads() == {2}
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 // 0
    assert threads() == {2}


def test_one_asks_at_a_time() -> None:
    """The last of two that overlap would restore the one thread that it has found."""
    inside: list[int] = []
    together: list[int] = []

    def ask() -> None:
        for _ in range(20):
            with one_thread():
                inside.append(1)
                time.sleep(0)  # another's turn
                together.append(len(inside))
                inside.pop()

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert set(together) == {1}
    assert threads() == {2}


def test_a_problem_is_ranked_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []

    def answer(*_: object) -> tuple[np.ndarray, np.ndarray]:
        seen.append(threads())
        return np.full(1, np.nan), np.empty((1, 0))

    predictor = object.__new__(Predictor)
    predictor._confidence = None
    monkeypatch.setattr(Predictor, "_one", answer)
    assert len(predictor.rank(object(), ()).order) == 0  # type: ignore[arg-type]
    assert seen == [{1}]
