"""The curves of runs: read as they grow, and sorted by what is on their axes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diode_engine.store import Store

Points = tuple[tuple[float, ...], tuple[float, ...]]  # xs, ys
Curves = Mapping[str, Points]  # by series
MAX_POINTS = 240  # of a curve that are drawn: a terminal has no more columns

_FOLD = re.compile(r",? ?fold \d+ of \d+")
# What a series' last word means, the first kind first.
_KINDS = {
    "efficiency": "efficiency on problems not fitted to",
    "objective": "loss",
    "train_objective": "loss",
    "log_rmse": "error of the logarithm of times",
}
# What a sample of a GPU's state holds behind its seconds (see `collect.progress.GpuProgress`).
_SAMPLED = (
    (6, "timings a second"), (4, "utilisation, %"), (1, "clock, MHz"), (3, "power, W"),
    (2, "temperature, °C"), (5, "memory, GB"), (7, "held back (1: yes)"),
)  # fmt: skip
# And one of the machine (see `runs.machine.MachineWatch`).
_CPU, _MEMORY = "CPU, % of all cores", "memory in use, GB"
_OF_MACHINE = (
    (1, f"the run/{_CPU}"), (2, f"the machine/{_CPU}"),
    (3, f"the run/{_MEMORY}"), (4, f"the machine/{_MEMORY}"),
)  # fmt: skip
_OVER_TIME = (*(what for _, what in _SAMPLED), _CPU, _MEMORY)
OVER_TIME = frozenset(_OVER_TIME)  # kinds whose x are seconds, of a run of any kind
_ORDER = (*dict.fromkeys(_KINDS.values()), *_OVER_TIME)


@dataclass(frozen=True)
class Series:
    """What a curve shows: the kind of its values, and whose they are, such as a member of a model.
    `of_fit` says that it is on the problems that the member was fitted to."""

    kind: str
    member: str
    of_fit: bool = False

    @property
    def axis(self) -> str:
        """What is counted along the x axis: trees have rounds and networks epochs, of which there
        are far fewer."""
        if self.member == "trials":
            return "trial"
        return "round" if self.member.startswith("trees") else "epoch"


def series_of(name: str) -> Series:
    """Return the series of a name such as `network-1/train_objective`."""
    member, _, last = name.rpartition("/")
    kind = _KINDS.get(last, last)
    if member == "search":
        return Series("efficiency of the search's trials", "trials")
    if _FOLD.search(member):
        kind = f"{kind}, on folds to learn how sure it is"
    if last == "train_objective":
        return Series(kind, f"{member} (fitted to)", of_fit=True)
    return Series(kind, member)


def kinds(names: Iterable[str]) -> list[str]:
    """Return the kinds of these series, the most used first, those of folds last."""
    found = dict.fromkeys(series_of(name).kind for name in names)
    return sorted(found, key=lambda kind: (", on folds" in kind, _place(kind), kind))


def _place(kind: str) -> int:
    plain = kind.partition(", on folds")[0]
    return _ORDER.index(plain) if plain in _ORDER else len(_ORDER)


def thin_points(points: Points, most: int = MAX_POINTS) -> Points:
    """At most so many of the points and the last one, evenly."""
    xs, ys = points
    step = -(-len(xs) // most)
    if step <= 1:
        return points
    places = range(len(xs) - 1, -1, -step)[::-1]
    return tuple(xs[i] for i in places), tuple(ys[i] for i in places)


class CurveReader:
    """Reads the curves of runs; of a run that it has read before, only the new points. For one
    thread at a time."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, Points]] = {}

    def read(self, store: Store, run: int) -> Curves:
        """Return the curves of the run. Raises NoSuchRunError where there is no such run."""
        known = self._known.setdefault(run, {})
        after = {name: xs[-1] for name, (xs, _) in known.items()}
        for name, (steps, values) in store.curves(run, after=after).items():
            xs, ys = known.get(name, ((), ()))
            known[name] = (*xs, *steps.tolist()), (*ys, *values.tolist())
        return dict(known)


def samples(progress: Mapping[str, Any]) -> Curves:
    """Return the samples of a run's machine, and of a collection's GPUs, over time (in seconds),
    from its progress. Values that are not known are left out."""
    gpus, machine = progress.get("gpus"), progress.get("machine")
    found: dict[str, Points] = {}
    for number, gpu in (gpus if isinstance(gpus, Mapping) else {}).items():
        shown = _SAMPLED if gpu.get("timings") else _SAMPLED[1:]
        found |= _columns(gpu, [(place, f"GPU {number}/{what}") for place, what in shown])
    return found | _columns(machine or {}, _OF_MACHINE)


def _columns(record: Mapping[str, Any], named: Iterable[tuple[int, str]]) -> dict[str, Points]:
    rows: Sequence[Sequence[float | None]] = record.get("samples") or ()
    found: dict[str, Points] = {}
    for place, name in named:
        known = [
            (row[0], row[place])
            for row in rows
            if len(row) > place and row[place] is not None  # runs of older versions have fewer
        ]
        if known:
            xs, ys = zip(*known, strict=True)
            found[name] = tuple(map(float, xs)), tuple(map(float, ys))
    return found
