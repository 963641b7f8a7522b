"""Home's charts, where there is room for them."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from diode_app.data.curves import kinds
from diode_app.data.home_charts import HomeCharts
from diode_app.widgets.charts import Line, Lines
from diode_app.widgets.curve_charts import RunCurves, collection_charts, training_charts
from diode_app.widgets.plot import Plot


class HomeChartsPanel(Horizontal):
    """The trend of the trainings, the live run's first curve, and the worst problems."""

    DEFAULT_CSS = """
    HomeChartsPanel {
        height: 1fr; min-height: 20;
        .panel { width: 1fr; }
        #home-worst { text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self, charts: HomeCharts) -> None:
        super().__init__()
        self._first = charts

    def compose(self) -> ComposeResult:
        for name, title, nothing in (
            ("trend", "Trainings", "No training is done yet."),
            ("live", "At work", "No run that draws curves is at work."),
        ):
            with Vertical(classes="panel") as panel:
                panel.border_title = title
                yield Plot(nothing, id=f"home-{name}")
        with VerticalScroll(classes="panel", can_focus=False) as panel:
            panel.border_title = "Worst problems"
            yield Static("No model was judged yet.", id="home-worst")

    def on_mount(self) -> None:
        self.show(self._first)

    def show(self, charts: HomeCharts) -> None:
        trend = Line("efficiency", tuple(charts.trend), tuple(charts.trend.values()))
        self.query_one("#home-trend", Plot).show(
            Lines((trend,), title="efficiency on held-out problems", x_label="run", whole_x=True)
        )
        live = self.query_one("#home-live", Plot)
        if charts.gpu_curves:
            drawn = collection_charts(charts.curves)
        else:
            kind = next(iter(kinds(charts.curves)), None)
            drawn = training_charts([RunCurves(charts.curves)], kind)
        live.show(*drawn[:1])
        title = "At work" if charts.live is None else f"At work: run {charts.live}"
        assert live.parent is not None
        if getattr(live.parent, "border_title", "") != title:
            live.parent.border_title = title  # type: ignore[attr-defined]
        if charts.judged:
            lines = [
                Content.styled(f"of {charts.judged}, by its choice's efficiency", "$text-muted")
            ]
            lines += [
                Content.assemble((f"{efficiency:.3f} ", "bold"), f"{problem}  ",
                                 (chosen, "$text-muted"))
                for efficiency, problem, chosen in charts.worst
            ]  # fmt: skip
            says = Content("\n").join(lines)
            worst = self.query_one("#home-worst", Static)
            if worst.content != says:
                worst.update(says)
