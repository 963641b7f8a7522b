"""What Home shows where there is room: how good the models have become, the curves of a live run,
and the problems on which the model is worst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diode_app.data.curves import CurveReader, Curves, samples
from diode_app.data.problem_columns import dtype, short
from diode_app.data.report_rows import sizes
from diode_app.data.reports import NoReportError, ShownReport, report_of
from diode_app.data.trainings import Trainings
from diode_engine.errors import StoreError

if TYPE_CHECKING:
    from diode_engine.store import Store

_TRAININGS = 60  # so many of the last ones
_WORST = 30


@dataclass(frozen=True)
class HomeCharts:
    """`trend` has the efficiency on held-out problems by the number of the training's run, the
    oldest first. `live` is the last live run that has curves; `gpu_curves` where it is a
    collection. `worst` are (efficiency, problem, chosen kernel) from the report on `judged`."""

    trend: Mapping[int, float] = field(default_factory=dict)
    live: int | None = None
    curves: Curves = field(default_factory=dict)
    gpu_curves: bool = False
    judged: str = ""
    worst: tuple[tuple[float, str, str], ...] = ()


class HomeChartReader:
    """Reads the charts of Home; each report is read once. For one thread at a time."""

    def __init__(self) -> None:
        self._trainings = Trainings()
        self._curves = CurveReader()
        self._report: ShownReport | None = None

    def read(self, store: Store) -> HomeCharts:
        from diode_engine.runs import find

        done = find(store, "kind:train state:done", limit=_TRAININGS)
        trainings = [self._trainings.read(store, status) for status in reversed(done)]
        trend = {t.run: t.efficiency for t in trainings if t.efficiency is not None and t.judged}
        live: int | None = None
        curves: Curves = {}
        is_collection = False
        for status in find(store, "state:running,cancelling"):
            is_collection = status.run.kind == "collect"
            if is_collection:
                curves = samples(status.run.progress or {})
            elif status.run.kind == "train":
                curves = self._curves.read(store, status.run.id)
            if curves:
                live = status.run.id
                break
        report = self._last_report(store)
        worst: tuple[tuple[float, str, str], ...] = ()
        if report is not None:
            known = [
                (
                    case.efficiency[1],
                    f"{sizes(case.problem):<22} {dtype(case.problem):<4}",
                    "" if case.chosen is None else short(case.chosen),
                )
                for case in report.cases
                if case.efficiency is not None
            ]
            worst = tuple(sorted(known)[:_WORST])
        judged = "" if report is None else report.model
        return HomeCharts(trend, live, curves, is_collection, judged, worst)

    def _last_report(self, store: Store) -> ShownReport | None:
        from diode_engine.runs import find

        last = find(store, "kind:validate state:done", limit=1)
        if not last:
            return None
        run = last[0].run.id
        if self._report is None or self._report.run != run:
            try:
                self._report = report_of(store, run)
            except (NoReportError, StoreError):  # Validate says what is the matter with it
                return None
        return self._report
