"""The curves of runs as charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diode_app.data.curves import OVER_TIME, Curves, kinds, series_of, thin_points
from diode_app.widgets.charts import Line, Lines

_AXES = ("epoch", "round", "trial")
_WHOSE = {"epoch": "networks", "round": "trees", "trial": "search"}


@dataclass(frozen=True)
class RunCurves:
    """A run's curves, with the run's name in a chart. `colour` is the number of the run's
    colour; without one each curve has its own. A `strong` run stands out where one of its curves
    is drawn."""

    curves: Curves
    before: str = ""
    behind: str = ""
    colour: int | None = None
    strong: bool = False


def training_charts(
    runs: Sequence[RunCurves], kind: str | None, *, member: str | None = None, log_y: bool = False
) -> tuple[Lines, ...]:
    """Return the curves of one kind over each other, those of networks over epochs and those of
    trees over rounds, each on axes of their own. A run that has one colour has no curves on the
    problems that it was fitted to. Of a kind that is over the time of the first run, return the
    charts of `collection_charts`."""
    if kind in OVER_TIME:
        return collection_charts(runs[0].curves, kind, log_y=log_y)
    lines: dict[str, list[Line]] = {}
    for run in runs:
        found = [(series_of(name), points) for name, points in run.curves.items()]
        found = [
            (series, points)
            for series, points in found
            if series.kind == kind
            and member in (None, series.member)
            and not (series.of_fit and run.colour is not None)
        ]
        alone = sum(not series.of_fit for series, _ in found) == 1
        for series, points in found:
            strong = run.strong and alone and not series.of_fit
            name = f"{run.before}{series.member}{run.behind}"
            lines.setdefault(series.axis, []).append(
                Line(name, *thin_points(points), strong=strong, colour=run.colour)
            )
    return tuple(
        Lines(
            tuple(lines[axis]),
            title=f"{kind}, {_WHOSE[axis]}" if len(lines) > 1 else str(kind),
            x_label=axis,
            whole_x=True,
            log_y=log_y,
        )
        for axis in _AXES
        if axis in lines
    )


_TIMES = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (300.0, 60.0, "minutes"))


def collection_charts(
    curves: Curves, first: str | None = None, *, log_y: bool = False
) -> tuple[Lines, ...]:
    """Return a chart for each kind of the GPUs' values over the run's time, with a line for each
    GPU. The kind `first` comes first; the others follow in their order, from there around."""
    curves = {name: xy for name, xy in curves.items() if series_of(name).kind in OVER_TIME}
    found = kinds(curves)
    if first in found:
        at = found.index(first)
        found = [*found[at:], *found[:at]]
    longest = max((xs[-1] for xs, _ in curves.values() if xs), default=0.0)
    length, unit = next(((by, unit) for least, by, unit in _TIMES if longest >= least),
                        (1.0, "seconds"))  # fmt: skip
    return tuple(
        Lines(
            tuple(
                Line(series_of(name).member, [x / length for x in xs], ys)
                for name, points in curves.items()
                if series_of(name).kind == kind
                for xs, ys in [thin_points(points)]
            ),
            title=kind,
            x_label=unit,
            log_y=log_y,
        )
        for kind in found
    )
