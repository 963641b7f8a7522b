"""The store of many timings that the dashboard is measured on. Skipped where there is no server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from diode_engine import paths
from diode_engine.location import location_of
from diode_engine.store import Store, write_dataset
from diode_engine.store.soundness import check
from tests.store.conftest import make_table


def test_measured_rows_are_repeated_soundly_and_say_so(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import repeated_store

    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path)
    monkeypatch.setattr(repeated_store, "ROWS_A_RUN", 20)
    folder = tmp_path / "datasets" / "a-gpu"
    folder.mkdir(parents=True)
    for number in (0, 128):  # M of the second is as large as M of the first one's first repetition
        write_dataset(make_table(7, 5, first=number), folder / f"{number}.packed.zst")
    repeated_store.fill(database, 200)
    assert not check(location_of(database)).problems
    with Store.open(database) as store:
        stats = store.stats()
        assert (stats.timings, stats.problems) == (210, 42)
        runs = store.runs()
        assert {run.note for run in runs} == {"made by repeating measured rows"}
        assert len(runs) == 12
        assert len({run.user for run in runs}) == len(repeated_store.PEOPLE)
        assert store.start_run("collect", {}) == 13  # the server counts on
        store.add(13, make_table(1, 1, first=5000))
    sys.modules.pop("repeated_store")
