"""A store, and a Ray cluster for the tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from diode_engine.store import Store
from tests.collect.ray_cluster import FakeCluster


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.db") as opened:
        yield opened


@pytest.fixture(scope="session")
def two_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """Two machines with a GPU each, which the tests leave as they are."""
    pytest.importorskip("ray", reason="Ray is not installed (the extra ray)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_DEDUP_LOGS", "0")
        cluster = FakeCluster(2)
        yield cluster
        cluster.close()
