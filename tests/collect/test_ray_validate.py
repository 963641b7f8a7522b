"""The command validate --cross-validate on a Ray cluster: the same report as here, and a progress
that goes forward and has a line for each machine. Skipped where Ray is not installed."""

from __future__ import annotations

import json
from functools import partial

import pytest

from diode_engine import paths
from diode_engine.cli import main
from diode_engine.store import Store
from diode_engine.training import cross_validation, run
from tests.collect.test_ray_fits import SMALL
from tests.training.conftest import make_timings


@pytest.fixture
def told(monkeypatch):
    """What the runs' progress was, one after the other."""
    seen = []
    write = Store.update_run

    def recording(store, number, *, progress=None, message=None):
        if progress is not None:
            seen.append(progress)
        write(store, number, progress=progress, message=message)

    monkeypatch.setattr(Store, "update_run", recording)
    return seen


def test_a_cross_validation_says_how_far_it_is_on_each_machine(
    tmp_path, monkeypatch, two_machines, told, capsys
):
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")
    monkeypatch.setattr(run, "WRITE_SECONDS", 0.0)
    settings = SMALL.but("trees", rounds=60)
    monkeypatch.setattr(
        cross_validation,
        "cross_validate",
        partial(cross_validation.cross_validate, settings=settings),
    )
    store = tmp_path / "s.db"
    with Store.open(store) as opened:
        opened.add(opened.start_run("import", {}), make_timings(90))
    arguments = [
        "validate",
        f"--store={store}",
        "--cross-validate=folds",
        "--family=trees",
        "--json",
    ]
    reports = []
    for where in ([], [f"--ray={two_machines.address}"]):
        told.clear()
        assert main([*arguments, *where]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0] == reports[1]
    fractions = [progress["fraction"] for progress in told if "fraction" in progress]
    assert len(fractions) > 10
    assert fractions == sorted(fractions)
    assert fractions[0] < 0.2
    assert 0.9 < fractions[-1] < 1.0
    assert {progress["rate"] for progress in told if "rate" in progress} == {None}  # of many fits
    nodes = [progress["nodes"] for progress in told if "nodes" in progress][-1]
    assert 1 < len(nodes) <= 3  # the two and the head, with a core each at least
    assert sum(int(said.split()[0]) for said in nodes.values()) == 5
    assert all("trees-0, fold " in said for said in nodes.values())
