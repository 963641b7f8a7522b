"""A model's ranking of a problem's candidates, its choice in words, and why a candidate has its
place."""

from __future__ import annotations

import math
from functools import partial

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from diode_app import text
from diode_app.data.background import in_thread
from diode_app.data.candidate import describe_tiles
from diode_app.data.choice import SURE, Answer, RankReasons, why
from diode_app.data.predictors import ModelAnswer
from diode_app.data.problem_columns import ranking_columns, short
from diode_app.data.tables import Row
from diode_app.screens.candidate import CandidateScreen
from diode_app.session import Session
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import Latest
from diode_engine.core.candidate import Candidate

_NO_WORDS = Content("")


class Ranking(Horizontal):
    """The candidates, and beside them the reasons for the one under the cursor. On a narrow screen
    with the class -why the reasons alone (see app.tcss). Enter opens the candidate's page."""

    DEFAULT_CSS = """
    Ranking {
        height: 1fr;
        PagedTable { width: 1fr; }
        #ranking-why { width: 1fr; padding: 0 1; border-left: solid $panel; }
    }
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._answer: Answer | None = None
        self._kernel: Candidate | None = None
        self._explaining: Latest[RankReasons] = Latest(
            self, lambda found: self._put_reasons(why_words(found)), self._put_reasons
        )

    def compose(self) -> ComposeResult:
        yield PagedTable(self._session, ranking_columns(False), what="candidates")
        with VerticalScroll(id="ranking-why", can_focus=True):
            yield Static(id="ranking-words")
            yield Static(id="ranking-reasons")

    @property
    def table(self) -> PagedTable:
        return self.query_one(PagedTable)

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
            self._explaining.drop()
            self._put_reasons("")
            return
        place = found.ranked.index(kernel)
        work = partial(why, found.question, found.ranked, place, chosen=chosen)
        self._explaining.do(partial(in_thread, work, "why"))

    def _candidate(self, pointed: str | None) -> Candidate | None:
        ranked = () if self._answer is None else self._answer.ranked
        key = (pointed or "").rpartition("/")[2]
        return next((candidate for candidate in ranked if candidate.key == key), None)

    def _put_reasons(self, words: str | Content) -> None:
        self.query_one("#ranking-reasons", Static).update(Content("") + words)

    def on_paged_table_pointed(self, event: PagedTable.Pointed) -> None:
        event.stop()
        self._explain(event.key)

    def on_paged_table_chosen(self, event: PagedTable.Chosen) -> None:
        event.stop()
        found, candidate = self._answer, self._candidate(event.key)
        if found is not None and candidate is not None:
            q = found.question
            self.app.push_screen(CandidateScreen(self._session, q.problem, candidate, q.hardware))


# In words


_BAR = 12
_NOTHING = 0.005  # of a log time: it reads 1.00×


def headline(found: Answer) -> Content:
    """Return the choice of each model, then what it is compared with."""
    lines = [_choice(number, answer) for number, answer in enumerate(found.answers, 1)]
    choice = found.answers[0].choice
    if len(found.answers) > 1 and (same := _agreement(found)):
        lines.append(Content(same))
    beside = [
        f"{name} {text.microseconds(us)} µs ({us / choice.predicted_us[0]:.2f}×)"
        for name, us in (("ATen", found.aten_us), ("best of DEFAULT", found.default_us))
        if us is not None and choice is not None
    ]
    roof = found.roofline
    if roof is not None:
        beside.append(f"roofline {text.microseconds(roof.time_us)} µs")
    if beside and choice is not None:
        lines.append(Content.styled(" · ".join(beside), "dim"))
    q = found.question
    fit = f"{found.prediction.launchable:,} of {len(found.prediction.candidates):,} candidates "
    fit += f"fit {q.hardware.name}"
    if q.hardware != q.model.hardware:
        fit += f", {q.model.likeness:.2f} like the {q.model.hardware.name} of the model"
    lines.append(Content.styled(fit, "dim"))
    return Content("\n").join(lines)


def _choice(number: int, answer: ModelAnswer) -> Content:
    choice, prediction = answer.choice, answer.prediction
    if choice is None:
        return Content.assemble(
            (f"{number} ", "bold $primary"),
            f"{answer.model.reference} cannot say: it was not trained on this op or type. "
            "A compile takes the library's kernel.",
        )
    sure = ""
    if prediction.reaches is not None:
        sure = f"  sure {prediction.reaches[0]:.2f}"
        to_time = prediction.count_to_reach(SURE)
        if to_time is not None and to_time > 1:
            sure += f"; {prediction.reaches[to_time - 1]:.2f} by timing {to_time}"
    return Content.assemble(
        (f"{number} ", "bold $primary"),
        f"{answer.model.reference} takes ",
        (short(choice.candidates[0]), "bold $text-success"),
        f"  {text.microseconds(choice.predicted_us[0])} µs",
        sure,
        (f"\n  {choice.why}", "dim"),
    )


def _agreement(found: Answer) -> str:
    ours, theirs = found.answers
    if ours.choice is None or theirs.choice is None:
        return ""
    if ours.choice.candidates == theirs.choice.candidates:
        return "  Both take the same."
    if found.other_us is None:
        return ""
    ratio = found.other_us / ours.choice.predicted_us[0]
    return (
        f"  By {ours.model.reference} the choice of {theirs.model.reference} takes "
        f"{text.microseconds(found.other_us)} µs ({ratio:.2f}×)."
    )


def why_words(found: RankReasons) -> Content:
    """Return the comparison with another kernel, what each group of features adds to it, and the
    resources that the kernel needs."""
    lines = [Content.styled(short(found.candidate), "bold")]
    if (apart := found.difference) is not None:
        ratio = apart.candidate_us / apart.baseline_us
        lines += [
            Content(f"{text.microseconds(apart.candidate_us)} µs, {ratio:.2f}× as long as"),
            Content(f"{short(found.baseline)}, {text.microseconds(apart.baseline_us)} µs."),
            Content(""),
            Content.styled("What makes it faster (▼) and slower (▲)", "dim"),
        ]
        most = max((abs(math.log(factor)) for factor in apart.factors.values()), default=0.0)
        for name, factor in apart.factors.items():
            lines.append(_factor(name, factor, most))
        lines.append(Content.styled("Shapley values; they multiply to the ratio above.", "dim"))
    resources = found.resources
    if resources is None:
        lines += [Content(""), Content("The features do not know this kernel.")]
        return Content("\n").join(lines)
    library = found.candidate.is_extern
    lines += [
        Content(""),
        Content.styled("Estimated" + (", with guessed tiles" if library else ""), "dim"),
        Content(describe_tiles(resources)),
        Content(f"multiprocessors busy {100 * resources.fill:.0f} % of the time"),
        Content(
            f"{text.size(round(resources.shared_bytes))} shared, {resources.registers:.0f} "
            f"registers a thread, {resources.blocks:.0f} blocks a multiprocessor"
        ),
        Content(""),
        Content.styled("Time of each part; they overlap", "dim"),
    ]
    longest = resources.limits_us[0][1]
    for name, us in resources.limits_us:
        lines.append(
            Content.assemble(
                (text.bar(us / longest, _BAR), "$primary"),
                f" {text.microseconds(us):>9} µs {name}",
            )
        )
    return Content("\n").join(lines)


def _factor(name: str, factor: float, most: float) -> Content:
    share = abs(math.log(factor))
    if share < _NOTHING:
        sign, style = "·", "dim"
    elif factor < 1:
        sign, style = "▼", "$text-success"
    else:
        sign, style = "▲", "$text-warning"
    bar = text.bar(share / most if most else 0.0, _BAR)
    return Content.assemble((f"{sign} {factor:5.2f}× ", style), bar, f" {name}")
