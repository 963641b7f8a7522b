"""The columns of the list of runs: a run's cell in each, what it is sorted by, and what they
mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.progress import as_number, fraction, remarks, seconds_left
from diode_app.data.trainings import Training

if TYPE_CHECKING:
    from diode_engine.runs import Status

# Fields of a spec that have a column of their own, or that do not say how runs differ.
_NOT_SETTINGS = frozenset(
    {
        "family",
        "query",
        "dataset",
        "hardware",
        "name",
        "fine_tune",
        "default",
        "gpu",
        "key",
        "file",
        "timings",
        "version",
    }
)


@dataclass(frozen=True)
class Listed:
    """A run in the list. `training` is None where the run is no training; `against` is the
    efficiency of the pinned training; `mark` says how the run's curves are drawn."""

    status: Status
    training: Training | None = None
    against: float | None = None
    mark: str = ""

    @property
    def efficiency(self) -> float | None:
        return None if self.training is None else self.training.efficiency

    @property
    def difference(self) -> float | None:
        """Its efficiency minus that of the pinned training."""
        if self.efficiency is None or self.against is None:
            return None
        return self.efficiency - self.against


def changed(status: Status) -> dict[str, Any]:
    """The settings of a run that differ from the defaults."""
    return {
        name: value
        for name, value in status.run.spec.items()
        if name not in _NOT_SETTINGS and value not in (None, False, "", 0, "0", [], ())
    }


def _efficiency(listed: Listed) -> str:
    value = listed.efficiency
    if value is None or listed.training is None:
        return ""
    return f"{value:.3f}" if listed.training.judged else f"({value:.3f})"


def _difference(listed: Listed) -> str:
    value = listed.difference
    return "" if value is None else f"{value:+.3f}".replace("-", "−")


def _data(listed: Listed) -> str:
    if listed.training is not None:
        return listed.training.data
    spec = listed.status.run.spec
    found = spec.get("query") or spec.get("source") or spec.get("file") or ""
    return " ".join(map(str, found)) if isinstance(found, list) else str(found)


def _gpus(listed: Listed) -> str:
    found = (listed.status.run.progress or {}).get("gpus")
    if not isinstance(found, Mapping):
        return ""
    machines = {gpu.get("node") for gpu in found.values()} - {None, ""}
    return f"{len(found)} on {len(machines)}" if machines else " ".join(map(str, found))


def _host(listed: Listed) -> str:
    process = listed.status.run.process
    return "" if process is None else process.host


def _user(listed: Listed) -> str:
    return listed.status.run.user or ""


def _progress(listed: Listed) -> str:
    part = fraction(listed.status)
    return "" if part is None else f"{text.bar(part, 8)} {100 * part:3.0f} %"


def _rate(listed: Listed) -> float | None:
    return as_number((listed.status.run.progress or {}).get("rate"))


def _left(listed: Listed) -> float | None:
    return None if listed.status.state.ended else seconds_left(listed.status)


def _trained(read: Callable[[Training], str | None]) -> Callable[[Listed], str]:
    return lambda listed: "" if listed.training is None else read(listed.training) or ""


CELLS: Mapping[str, Callable[[Listed], str]] = {
    "mark": lambda r: r.mark,
    "run": lambda r: str(r.status.run.id),
    "kind": lambda r: r.status.run.kind,
    "state": lambda r: text.state(str(r.status.state)),
    "progress": _progress,
    "rate": lambda r: "" if not _rate(r) else f"{_rate(r):.3g}/s",
    "left": lambda r: "" if _left(r) is None else text.seconds(_left(r)),
    "duration": lambda r: text.seconds(r.status.seconds),
    "family": _trained(lambda t: t.what),
    "efficiency": _efficiency,
    "against": _difference,
    "model": _trained(lambda t: t.model),
    "data": _data,
    "changed": lambda r: text.pairs(changed(r.status)),
    "gpu": _gpus,
    "started": lambda r: f"{text.local(r.status.run.started):%m-%d %H:%M}",
    "host": _host,
    "user": _user,
    "tags": lambda r: " ".join(r.status.run.tags),
    "note": lambda r: remarks(r.status),
}
SORTS: Mapping[str, Callable[[Listed], Any]] = {
    "run": lambda r: r.status.run.id,
    "kind": lambda r: r.status.run.kind,
    "state": lambda r: str(r.status.state),
    "progress": lambda r: fraction(r.status) or 0.0,
    "rate": lambda r: _rate(r) or 0.0,
    "left": lambda r: _left(r) or 0.0,
    "duration": lambda r: r.status.seconds,
    "family": CELLS["family"],
    "efficiency": lambda r: r.efficiency or 0.0,
    "against": lambda r: -1.0 if r.difference is None else r.difference,
    "model": CELLS["model"],
    "data": CELLS["data"],
    "started": lambda r: r.status.run.started,
    "host": _host,
    "user": _user,
    "tags": lambda r: r.status.run.tags,
    "note": lambda r: r.status.run.note or "",
}


def cells(listed: Listed) -> dict[str, str]:
    """A run's cell in each column."""
    return {name: cell(listed) for name, cell in CELLS.items()}
