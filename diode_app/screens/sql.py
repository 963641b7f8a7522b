"""The store's tables, asked in SQL: a statement that only reads, and its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import ContentSwitcher, Static, TextArea

from diode_app import text
from diode_app.actions import Action
from diode_app.data.answers import SCHEMA, answer_table, is_numeric, schema_rows
from diode_app.data.background import in_thread
from diode_app.data.store_access import Look
from diode_app.data.tables import MAX_ROWS, Column, Row
from diode_app.screens.filtered_list import QueryScreen
from diode_app.session import Session
from diode_app.widgets.plot import Line, Lines, Plot
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import Latest
from diode_engine.store import console
from diode_engine.store.console import Answer

FIRST = """SELECT op, dtype, count(*) AS problems, avg(best_us / aten_us) AS efficiency
FROM summaries JOIN problems ON problems.id = problem
GROUP BY op, dtype ORDER BY problems DESC"""
_CURVES = 6  # at most, in a plot


class SqlScreen(QueryScreen):
    """A statement, its answer as a table or as a plot, and the columns of the store's tables."""

    MODE = "sql"
    ACTIONS = (
        Action("sql.run", "ctrl+g", "Run", "Answer the statement. It can write nothing, and ends "
               "after ten seconds or a thousand rows.",
               "diode-engine db query {statement} --store={store}"),
        Action("sql.edit", "n", "Edit", "To the statement; Escape leaves it.",
               does="focus('TextArea')"),
        Action("sql.plot", "v", "Plot", "The answer's numbers over the first of them, or the "
               "table again."),
        Action("sql.earlier", "p", "Earlier", "The statement before."),
        Action("sql.save-filter", "b", "Save", "Give the statement a name, by which : finds it."),
        Action("sql.schema", "t", "Tables", "The columns of the store's tables; Enter puts one "
               "into the statement.", "diode-engine db query --store={store}"),
    )  # fmt: skip
    DEFAULT_CSS = """
    SqlScreen {
        TextArea { height: 6; border-bottom: solid $panel; }
        TextArea:focus { border-bottom: solid $primary; }
        #sql-says { max-height: 3; padding: 0 1; color: $text-muted; }
        #sql-says.-wrong { color: $text-error; }
        #sql-left { width: 1fr; }
        #sql-answer { height: 1fr; }
        #sql-schema { width: 44; border-left: solid $panel; }
        &.-narrow #sql-schema { display: none; }
        &.-tables #sql-schema { display: block; }
        &.-narrow.-tables #sql-left { display: none; }
        &.-narrow.-tables #sql-schema { width: 1fr; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        complain = partial(self._say, wrong=True)
        self._asking: Latest[tuple[str, Answer, float]] = Latest(self, self._show, complain)
        self._answer: Answer | None = None
        self._found_no_store = False
        self._history = session.filter_history.setdefault("sql", [])

    def body(self) -> ComposeResult:
        with Horizontal():
            with Vertical(id="sql-left"):
                yield TextArea(FIRST, compact=True, id="sql-statement")
                yield Static("n goes to the statement, ^g answers it.", id="sql-says", markup=False)
                with ContentSwitcher(initial="sql-table", id="sql-answer"):
                    yield PagedTable(self.session, (), what="rows", id="sql-table")
                    yield Plot("The answer has no numbers to draw.", id="sql-plot")
            yield PagedTable(self.session, SCHEMA, what="columns", id="sql-schema")

    def body_mounted(self) -> None:
        self.area.cursor_blink = False
        schema = self.query_one("#sql-schema", PagedTable)
        schema.query_now = replace(schema.query_now, rows=MAX_ROWS)
        schema.show_rows(schema_rows())

    @property
    def area(self) -> TextArea:
        return self.query_one(TextArea)

    @property
    def query_text(self) -> str:
        """The statement."""
        return self.area.text.strip() if self.has_body else ""

    def values(self) -> Mapping[str, object]:
        return {"statement": self.query_text or None}

    def take(self, given: str) -> None:
        self.area.load_text(given)
        self.action_run()

    # The answer

    @property
    def is_behind(self) -> bool:
        """Whether a statement is not answered yet; keys wait for the answer."""
        return self._asking.busy

    def look_changed(self, look: Look) -> None:
        if self._found_no_store:
            self.action_run()

    def action_run(self) -> None:
        asked = self.query_text
        self._say("Asking ...")

        def answer() -> tuple[str, Answer, float]:
            began = time.monotonic()
            found = console.ask(self.session.location, asked)
            return asked, found, time.monotonic() - began

        self._asking.do(lambda: in_thread(answer, "sql"))

    def _show(self, found: tuple[str, Answer, float]) -> None:
        asked, self._answer, seconds = found
        if asked in self._history:
            self._history.remove(asked)
        self._history.append(asked)
        columns, rows = answer_table(self._answer)
        table = self.query_one("#sql-table", PagedTable)
        table.ask(replace(table.query_now, sort=None, filter="", page=0))
        table.set_columns(columns)
        table.show_rows(rows)
        self.query_one(Plot).show(*chart(columns, rows))
        more = "; there are more, which db query --rows reads" if self._answer.more else ""
        self._say(f"{text.quantity(len(rows), 'rows')} in {seconds:.2f} s{more}.")
        if self.area.has_focus:
            table.focus_rows()

    def _say(self, sentence: str, *, wrong: bool = False) -> None:
        self._found_no_store = wrong and not self.session.store.last.ready
        self.query_one("#sql-says", Static).set_class(wrong, "-wrong")
        self.put("#sql-says", f"✗ {sentence}" if wrong else sentence)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        if event.table.id == "sql-schema":
            self.area.insert(event.key.rpartition(".")[2])
            self.remove_class("-tables")
            self.area.focus()
            return
        row = event.table.pointed_row
        record = {} if row is None else row.record
        if isinstance(run := record.get("run"), int):
            self.dashboard.open_run(run)
        elif isinstance(problem := record.get("problem"), int):
            self.dashboard.go_to_place("data", f"id:{problem}")

    # Other actions

    def action_plot(self) -> None:
        switcher = self.query_one(ContentSwitcher)
        switcher.current = "sql-plot" if switcher.current == "sql-table" else "sql-table"
        shown = self.query_one(f"#{switcher.current}")
        shown.focus_rows() if isinstance(shown, PagedTable) else shown.focus()

    def action_earlier(self) -> None:
        """Show the statement that was answered before the one that is shown."""
        now = self.query_text
        at = self._history.index(now) if now in self._history else 0
        if self._history:
            self.area.load_text(self._history[at - 1])

    def action_schema(self) -> None:
        self.toggle_class("-tables")
        self.query_one("#sql-schema", PagedTable).focus_rows()


def chart(columns: Sequence[Column], rows: Sequence[Row]) -> list[Lines]:
    """Return the plot of an answer: its columns of numbers over the first of them, or over the
    row's number where there is only one or where the first column has no numbers."""
    names = [column.key for column in columns]
    numbers = [n for n in names if is_numeric([row.record[n] for row in rows])]
    if not numbers:
        return []
    over = numbers[0] if numbers[0] == names[0] and len(numbers) > 1 else None
    drawn = [name for name in numbers if name != over][:_CURVES]
    places = [
        (number if over is None else row.record[over], row.record)
        for number, row in enumerate(rows, 1)
    ]
    places.sort(key=lambda place: (place[0] is None, place[0]))
    lines = []
    for name in drawn:
        known = [(x, r[name]) for x, r in places if x is not None and r[name] is not None]
        lines.append(Line(name, [x for x, _ in known], [y for _, y in known]))
    return [Lines(lines, title=", ".join(drawn), x_label=over or "row", whole_x=over is None)]
