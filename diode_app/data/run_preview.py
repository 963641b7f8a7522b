"""The preview beside the list of runs: the main facts of a run, and the curves to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diode_app import text
from diode_app.data.curves import CurveReader, Curves, kinds
from diode_app.data.progress import remarks
from diode_app.data.run_columns import Listed, cell, changed_settings
from diode_app.data.runs import RunView, run_view
from diode_app.data.trainings import baseline_of, training

if TYPE_CHECKING:
    from diode_engine.store import Store


@dataclass(frozen=True)
class RunPreview:
    """`view` and `facts` (the main ones) are of the run under the cursor. `curves` are those of all
    trainings that are drawn, by run."""

    view: RunView | None
    facts: tuple[tuple[str, str], ...]
    pinned: int | None
    curves: Mapping[int, Curves]

    @property
    def kind(self) -> str | None:
        """The first kind of the curves."""
        return next(iter(kinds(name for curves in self.curves.values() for name in curves)), None)


def run_preview(
    store: Store, run: int | None, marked: Sequence[int], reader: CurveReader
) -> RunPreview:
    """Return the preview of a run, with the curves of the `marked` ones. Raises StoreError where
    there is no such run."""
    pinned = baseline_of(store)
    drawn = [*([] if pinned is None else [pinned]), *marked]
    view: RunView | None = None
    facts: tuple[tuple[str, str], ...] = ()
    if run is not None:
        view = run_view(store, run, reader)
        facts = _facts(store, view)
        if view.status.run.kind == "train":
            drawn.append(run)
    curves = {each: reader.read(store, each) for each in dict.fromkeys(drawn)}
    return RunPreview(view, facts, pinned, curves)


def _facts(store: Store, view: RunView) -> tuple[tuple[str, str], ...]:
    status = view.status
    is_training = status.run.kind == "train"
    listed = Listed(status, training(store, status) if is_training else None)
    left = view.left_seconds
    facts = [
        ("took" if status.state.ended else "so far", text.seconds(status.seconds)),
        ("left", "" if left is None else text.seconds(left)),
        ("message", remarks(status) or view.says),
        ("efficiency", cell(listed, "efficiency")),
        ("model", cell(listed, "model")),
        ("data", cell(listed, "data")),
        ("changed", text.pairs(changed_settings(status))),
        ("failed", text.pairs(view.failures)),
        ("tags", " ".join(status.run.tags)),
    ]
    return tuple((name, value) for name, value in facts if value)
