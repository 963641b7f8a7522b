"""The columns of the list of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.columns import Column
from diode_app.data.progress import as_number, fraction, outcome, remarks, seconds_left
from diode_app.data.trainings import Training

if TYPE_CHECKING:
    from diode_engine.runs import Status

# Fields of a spec that have a column of their own, or that do not say how runs differ.
_NOT_SETTINGS = frozenset({
    "family", "query", "dataset", "hardware", "name", "fine_tune", "default", "gpu", "key", "file",
    "timings", "version",
})  # fmt: skip


@dataclass(frozen=True)
class Listed:
    """A run in the list. `training` is None where the run is no training; `against` is the pinned
    training; `mark` says how the run's curves are drawn."""

    status: Status
    training: Training | None = None
    against: Training | None = None
    mark: str = ""

    @property
    def efficiency(self) -> float | None:
        """Of a training or a validation."""
        if self.training is not None:
            return self.training.efficiency
        return as_number(self.progress.get("efficiency"))

    @property
    def progress(self) -> Mapping[str, Any]:
        return self.status.run.progress or {}

    @property
    def judged_on(self) -> str:
        """The problems that the efficiency is of; alike where efficiencies can be compared."""
        if self.efficiency is None:
            return ""
        if self.training is not None:
            return self.training.judged_on
        spec = self.status.run.spec
        which = " ".join(map(str, (v for k, v in spec.items() if k not in ("model", "figure"))))
        return f"{self.progress.get('problems', 0):,} problems {which}".strip()

    @property
    def difference(self) -> float | None:
        """Its efficiency minus that of the pinned training, where both are of the same problems."""
        pinned = self.against
        if pinned is None or pinned.efficiency is None or self.efficiency is None:
            return None
        return self.efficiency - pinned.efficiency if pinned.judged_on == self.judged_on else None


def changed_settings(status: Status) -> dict[str, Any]:
    """Return the settings of a run that differ from the defaults."""
    return {
        name: value
        for name, value in status.run.spec.items()
        if name not in _NOT_SETTINGS and value not in (None, False, "", 0, "0", [], ())
    }


def _efficiency(listed: Listed) -> str:
    value = listed.efficiency
    if value is None:
        return ""
    is_judged = listed.training is None or listed.training.judged
    return f"{value:.3f}" if is_judged else f"({value:.3f})"


def _model(listed: Listed) -> str:
    named = listed.progress.get("judged") if listed.training is None else listed.training.model
    return str(named or "")


def _data(listed: Listed) -> str:
    if listed.training is not None:
        return listed.training.data
    spec = listed.status.run.spec
    found = spec.get("query") or spec.get("source") or spec.get("file") or ""
    return " ".join(map(str, found)) if isinstance(found, list) else str(found)


def _gpus(listed: Listed) -> str:
    found = listed.progress.get("gpus")
    if not isinstance(found, Mapping):
        return ""
    machines = {gpu.get("node") for gpu in found.values()} - {None, ""}
    return f"{len(found)} on {len(machines)}" if machines else " ".join(map(str, found))


def _host(listed: Listed) -> str:
    process = listed.status.run.process
    return "" if process is None else process.host


def _progress(listed: Listed) -> str:
    part = fraction(listed.status)
    return "" if part is None else f"{text.bar(part, 8)} {100 * part:3.0f} %"


def _rate(listed: Listed) -> float | None:
    return as_number(listed.progress.get("rate"))


def _left(listed: Listed) -> float | None:
    return None if listed.status.state.ended else seconds_left(listed.status)


def _trained(read: Callable[[Training], str | None]) -> Callable[[Listed], str]:
    return lambda listed: "" if listed.training is None else read(listed.training) or ""


@dataclass(frozen=True, kw_only=True)
class RunColumn(Column):
    """A column of the list of runs: `cell` writes a run's cell, `sort` returns what the list is
    sorted by (None: it cannot be)."""

    cell: Callable[[Listed], str]
    sort: Callable[[Listed], Any] | None = None


def _column(
    key: str,
    meaning: str,
    cell: Callable[[Listed], str],
    sort: Callable[[Listed], Any] | None = None,
    *,
    label: str | None = None,
    rank: int = 0,
    right: bool = False,
    state: bool = False,
) -> RunColumn:
    return RunColumn(
        key=key, label=key if label is None else label, meaning=meaning, cell=cell, sort=sort,
        sortable=sort is not None, rank=rank, right=right, state=state,
    )  # fmt: skip


# In the order in which they are shown by default. Where there is no room, the highest rank goes
# first.
RUN_COLUMNS = (
    _column("mark", "● marked for comparison, in the colour of its curves; ★ pinned",
            lambda r: r.mark, label=""),
    _column("run", "its number, for links such as run/11", lambda r: str(r.status.run.id),
            lambda r: r.status.run.id, right=True),
    _column("kind", "collect, train, validate, import, …", lambda r: r.status.run.kind,
            lambda r: r.status.run.kind, rank=1),
    _column("state", "queued, running, cancelling, done, failed, cancelled, or dead: its process "
            "is gone", lambda r: text.state(outcome(r.status)), lambda r: outcome(r.status),
            state=True),
    _column("progress", "the part of its work that is done, in %", _progress,
            lambda r: fraction(r.status) or 0.0, rank=3),
    _column("rate", "timings a second, over the last minute",
            lambda r: "" if not _rate(r) else f"{_rate(r):.3g}/s", lambda r: _rate(r) or 0.0,
            rank=13, right=True),
    _column("left", "time until it is done, at its pace so far",
            lambda r: "" if _left(r) is None else text.seconds(_left(r)),
            lambda r: _left(r) or 0.0, label="time left", rank=4),
    _column("duration", "how long it has worked", lambda r: text.seconds(r.status.seconds),
            lambda r: r.status.seconds, rank=7),
    _column("family", "the kind of model that a training makes, or the model that it tunes",
            _trained(lambda t: t.what), _trained(lambda t: t.what), rank=5),
    _column("efficiency", "of a training's or a validation's model on held-out problems, a "
            "geometric mean; 1 is as fast as the best kernel that was measured. In brackets: of a "
            "member that is being fitted, on problems that it is not fitted to", _efficiency,
            lambda r: r.efficiency or 0.0, label="of best", rank=2, right=True),
    _column("against", "its efficiency minus that of the pinned training; only where both were "
            "judged on the same problems", lambda r: text.difference(r.difference),
            lambda r: -1.0 if r.difference is None else r.difference, label="± pinned", rank=6,
            right=True),
    _column("model", "what a training registered, or a validation judged", _model, _model,
            rank=10),
    _column("data", "the filter query, the source or the file that it works on", _data, _data,
            rank=11),
    _column("changed", "the settings that differ from the defaults",
            lambda r: text.pairs(changed_settings(r.status)), label="changed settings", rank=12),
    _column("gpu", "the numbers of the GPUs that it times on", _gpus, label="GPU", rank=15),
    _column("started", "month, day and time",
            lambda r: f"{text.local(r.status.run.started):%m-%d %H:%M}",
            lambda r: r.status.run.started, label=f"started ({text.zone()})", rank=14),
    _column("host", "the machine that it works, or has worked, on", _host, _host, rank=16),
    _column("user", "who started it, by the name that they have on that machine",
            lambda r: r.status.run.user or "", lambda r: r.status.run.user or "", rank=17),
    _column("tags", "your tags", lambda r: " ".join(r.status.run.tags), lambda r: r.status.run.tags,
            rank=9),
    _column("note", "your note, else how it ended", lambda r: remarks(r.status),
            lambda r: r.status.run.note or "", rank=8),
)  # fmt: skip
_CELLS = {column.key: column.cell for column in RUN_COLUMNS}
SORTS = {column.key: column.sort for column in RUN_COLUMNS if column.sort is not None}


def cell(listed: Listed, key: str) -> str:
    """Return a run's cell in the column with this key."""
    return _CELLS[key](listed)


def cells(listed: Listed) -> dict[str, str]:
    """Return a run's cell in each column."""
    return {column.key: column.cell(listed) for column in RUN_COLUMNS}
