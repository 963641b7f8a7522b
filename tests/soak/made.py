"""A store and a model, for what is done to them."""

from __future__ import annotations

from pathlib import Path

from diode_engine.core.hardware import H200
from diode_engine.models.artifact import save_artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, Manifest
from diode_engine.store import Store
from tests.samples import weighing
from tests.soak import work


def store(path: Path) -> Path:
    """With three runs, of which two have timed the same problems and one has a result."""
    with Store.open(path) as opened:
        first, second, third = (opened.start_run("collect", {"by": i}) for i in range(3))
        opened.add(first, work.table(60, 40))
        opened.add(second, work.table(40, 15))
        opened.set_result(third, {"efficiency": 0.9})
        opened.add_points(third, "loss", [(i, 1 / (1 + i)) for i in range(20)])
        opened.tag(third, "odd")
        for run in (first, second, third):
            opened.finish_run(run, "done")
    return path


def model(folder: Path) -> Path:
    """The folder of a network without weights."""
    timed = work.table(3, 5)
    manifest = Manifest(
        name="mine", family="", hardware=H200, coverage=Coverage.make(timed),
        data=Data(("d" * 32,), (), len(timed.problems), len(timed)),
    )  # fmt: skip
    save_artifact(folder, manifest, (weighing({}, residual=True),))
    return folder
