"""A model's ranking of a problem's candidates, and why one of them has its place there."""

from __future__ import annotations

from functools import partial

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from diode_app.data.choice import Answer, RankReasons, why
from diode_app.data.pages import Row
from diode_app.data.problem_columns import ranking_columns
from diode_app.data.threads import in_thread
from diode_app.screens.ask_words import why_words
from diode_app.screens.candidate import CandidateScreen
from diode_app.session import Session
from diode_app.widgets.reading import Latest
from diode_app.widgets.table import MemoryTable, PagedTable
from diode_engine.core.candidate import Candidate

_NO_WORDS = Content("")


class Ranking(Horizontal):
    """The candidates, and beside them the reasons for the one under the cursor. On a narrow screen
    with the class -why the reasons alone (see app.tcss). Enter opens the candidate's page."""

    DEFAULT_CSS = """
    Ranking {
        height: 1fr;
        MemoryTable { width: 1fr; }
        #ranking-why { width: 1fr; padding: 0 1; border-left: solid $panel; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._answer: Answer | None = None
        self._kernel: Candidate | None = None
        self._explaining: Latest[RankReasons] = Latest(self, self._show_why, self._clear)

    def compose(self) -> ComposeResult:
        yield MemoryTable(self._session, ranking_columns(False), what="candidates")
        with VerticalScroll(id="ranking-why", can_focus=True):
            yield Static(id="ranking-words")
            yield Static(id="ranking-reasons")

    @property
    def table(self) -> MemoryTable:
        return self.query_one(MemoryTable)

    def focus_words(self) -> None:
        self.query_one("#ranking-why").focus()

    def show(
        self, found: Answer | None, words: Content = _NO_WORDS, kernel: Candidate | None = None
    ) -> None:
        """Show this ranking from now on (None: no candidates), with the words above the reasons.
        Until the table has the focus, the reasons are for this kernel, where there is one."""
        self._answer, self._kernel = found, kernel
        self.query_one("#ranking-words", Static).update(words)
        rows = []
        if found is not None:
            self.table.set_columns(ranking_columns(found.question.other is not None))
            # With the problem in the key: the same candidate of another problem is another row.
            problem = found.question.problem.key
            rows = [Row(f"{problem}/{row.key}", row.cells, row.record) for row in found.rows]
        self.table.show_rows(rows)
        self._explain(self.table.pointed)

    def _explain(self, pointed: str | None) -> None:
        found, kernel = self._answer, self._kernel
        chosen = kernel is not None and not self.table.has_focus_within
        if not chosen:
            kernel = self._candidate(pointed) or next(iter(found.ranked if found else ()), None)
        if found is None or kernel not in found.ranked:
            self._clear("")
            return
        place = found.ranked.index(kernel)
        work = partial(why, found.question, found.ranked, place, chosen=chosen)
        self._explaining.do(partial(in_thread, work, "why"))

    def _candidate(self, pointed: str | None) -> Candidate | None:
        ranked = () if self._answer is None else self._answer.ranked
        key = (pointed or "").rpartition("/")[2]
        return next((candidate for candidate in ranked if candidate.key == key), None)

    def _show_why(self, found: RankReasons) -> None:
        self.query_one("#ranking-reasons", Static).update(why_words(found))

    def _clear(self, sentence: str) -> None:
        self.query_one("#ranking-reasons", Static).update(Content(sentence))

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        event.stop()
        self._explain(event.key)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        event.stop()
        found, candidate = self._answer, self._candidate(event.key)
        if found is not None and candidate is not None:
            q = found.question
            self.app.push_screen(CandidateScreen(self._session, q.problem, candidate, q.hardware))
