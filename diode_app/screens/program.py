"""The page of a program: which of its products gain most, why, and what to do about the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from diode_app import text
from diode_app.actions import Action
from diode_app.data.background import in_thread
from diode_app.data.choice import Answer
from diode_app.data.predictors import Model, all_models
from diode_app.data.problems import rows_of
from diode_app.data.programs import (
    REPORT,
    ProductView,
    Program,
    Source,
    ask_models,
    product_columns,
    product_rows,
    read_program,
    read_programs,
    view_products,
    write_products,
)
from diode_app.data.tables import page_in_memory
from diode_app.screens.base import DiodeScreen, ReaderIfReady
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.ranking import Ranking
from diode_app.session import Session
from diode_app.widgets.modals import PickOne
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import Latest, acts
from diode_engine.core.problem import Problem
from diode_engine.reports.record import Outcome, Product

_AT_ONCE = 8  # products that the model is asked about before they are shown
_MINUTES = 10  # of a tuning


class ProgramScreen(DiodeScreen):
    """The products, the candidates of the product under the cursor, and why the one under their
    cursor has its place. Where there is no room, `w` shows the words in place of the products."""

    MODE = "programs"
    NEEDS_STORE = False
    HELP_TITLE = "A program"
    LINK = "program"
    ACTIONS = (
        Action("program.back", "escape", "Back", "To where this page was opened."),
        Action("program.open", "enter", "Open", "What was timed of this product, or else what the "
               "model would choose.", footer=False),
        Action("program.why", "w", "Why", "Why this product gets its kernel, what it gains, and "
               "where it is."),
        Action("program.ask", "a", "Ask", "All candidates of this product, as a model ranks them."),
        Action("program.collect", "c", "Collect", "Time the products that are listed (/ filters "
               "them).", "diode-engine collect --file {products} --store={store}",
               writes=True),
        Action("program.tune", "t", "Tune", "Make a model for the products that are listed.",
               "diode-engine tune --shapes {products} --store={store}", writes=True),
        Action("program.beside", "v", "Beside", "The choices of another model, or of another "
               "program, beside these."),
    )  # fmt: skip
    HEADLESS = (("As text", "diode-engine report --file {program}"),)
    DEFAULT_CSS = """
    ProgramScreen {
        #program-says { max-height: 5; }
        #program-products { height: 1fr; }
        Ranking { border-top: solid $panel; }
        &.-narrow Ranking, &.-low Ranking { display: none; }
        &.-why Ranking { display: block; border-top: none; }
        &.-why #program-products { display: none; }
    }
    """

    def __init__(self, session: Session, source: Source) -> None:
        super().__init__(session)
        self._source = source
        self._program: Program | None = None
        self._beside: Model | Program | None = None
        self._answers: dict[Problem, Answer] = {}
        self._views: tuple[ProductView, ...] = ()
        self._answering: Latest[dict[Problem, Answer]] = Latest(self, self._show_answers, self.fail)

    def body(self) -> ComposeResult:
        yield Static(id="program-title", classes="line", markup=False)
        yield Static("Reading ...", id="program-says", classes="words")
        yield PagedTable(
            self.session, product_columns(""), what="distinct products", sort="saved_us",
            descending=True, id="program-products",
        )  # fmt: skip
        yield Ranking(self.session)

    @property
    def table(self) -> PagedTable:
        return self.query_one("#program-products", PagedTable)

    def values(self) -> Mapping[str, object]:
        return {"program": str(self._source), "products": None}

    # What is read

    def reader(self) -> ReaderIfReady[Program]:
        source, hardware = self._source, self.session.hardware
        return lambda store: read_program(source, hardware, store)

    def fail(self, sentence: str) -> None:
        self.put("#program-says", Content(f"✗ {sentence}"))

    def show(self, snapshot: Program) -> None:
        program = snapshot
        if program != self._program:
            self._program = program
            known = set(program.problems)
            self._answers = {p: said for p, said in self._answers.items() if p in known}
            made = text.minute(program.report.created)
            self.put("#program-title", f"{program.report.program} · {program.kind} of {made}")
            self._list()
            self._ask_next()

    def _ask_next(self) -> None:
        program = self._program
        if program is not None and program.model is not None:
            left = [p for p in program.problems if p not in self._answers][:_AT_ONCE]
            if left:
                other = self._beside if isinstance(self._beside, Model) else None
                work = partial(ask_models, left, program, other)
                self._answering.do(partial(in_thread, work, "ask"))

    def _show_answers(self, answers: dict[Problem, Answer]) -> None:
        self._answers |= answers
        self._list()
        self._ask_next()

    def _list(self) -> None:
        program = self._program
        assert program is not None
        beside = self._beside if isinstance(self._beside, Program) else None
        self._views = view_products(program, self._answers, beside)
        self.put("#program-says", summary(program, self._views, self._beside))
        columns = product_columns("2" if self._beside is not None else "")
        if columns != self.table.columns:
            self.table.set_columns(columns)
        # Where no report says what gains most, all answers come first: the cursor is on the top.
        waits = program.model is not None and len(self._answers) < len(program.problems)
        if program.kind == REPORT or not waits:
            self.table.show_rows(product_rows(self._views, columns))
            self._show_product()

    # The product under the cursor

    @property
    def _view(self) -> ProductView | None:
        pointed = self.table.pointed
        return self._views[int(pointed)] if pointed and int(pointed) < len(self._views) else None

    def on_paged_table_pointed(self) -> None:
        self._show_product()

    def _show_product(self) -> None:
        if (view := self._view) is not None:
            problem = view.product.problem
            said = None if problem is None else self._answers.get(problem)
            words = product_words(view, self._views) + Content("\n")
            self.query_one(Ranking).show(said, words, view.product.kernel)

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        needs = action in ("open", "why", "ask", "collect", "tune")
        if needs and not (self.has_body and self._view is not None):
            return False
        return super().check_action(action, parameters)

    def on_paged_table_chosen(self) -> None:
        self.action_open()

    @acts(asks=False)
    async def action_open(self) -> None:
        problem = None if self._view is None else self._view.product.problem
        if problem is None:
            self.notify("Diode has no such problem: there is nothing to open.")
            return

        ready = self.session.store.last.ready
        if ready and await self.session.store.read(lambda store: bool(rows_of(store, problem.key))):
            self.app.push_screen(ProblemScreen(self.session, problem.key))
        else:
            self.action_ask()

    def action_ask(self) -> None:
        view, program = self._view, self._program
        if view is not None and view.product.problem is not None and program is not None:
            hardware = None if program.model is None else program.model.hardware
            self.dashboard.go_to_place("ask", (view.product.problem, hardware))

    def action_back(self) -> None:
        """Go back to the list of products, or else close the page."""
        if self.table.has_focus_within:
            super().action_back()
        else:
            self.remove_class("-why")
            self.table.focus_rows()

    def action_why(self) -> None:
        if not self.query_one(Ranking).region:
            self.add_class("-why")
        self.query_one(Ranking).focus_words()

    @property
    def _listed(self) -> Sequence[Problem]:
        """The problems of the rows that the filter matches."""
        rows = product_rows(self._views, self.table.columns)
        query = replace(self.table.query_now, page=0, rows=max(1, len(rows)))
        found = {int(row.key) for row in page_in_memory(rows, query).rows}
        problems = (v.product.problem for i, v in enumerate(self._views) if i in found)
        return tuple(dict.fromkeys(p for p in problems if p is not None))

    async def _write_listed(self) -> str:
        """Write a shapeset of the listed products, and return its path."""
        write = partial(write_products, self._listed)
        return str(await self.session.store.change(write, "products"))

    @acts(writes=True)
    async def action_collect(self) -> None:
        self.dashboard.go_to_place("collect", {"file": await self._write_listed()})

    @acts(writes=True)
    async def action_tune(self) -> str | None:
        here, count = self.session.here, len(self._listed)
        if here is not None and not here.count:
            return "There is no GPU here; copy the command (y) to where one is."
        products = "this product" if count == 1 else f"these {count} products"
        question = f"Tune a model to {products}? It takes {_MINUTES} minutes."
        if not await self.confirm(question, "Start it"):
            return None
        shapes = [await self._write_listed()]
        run = await self.start_run("tune", {"minutes": _MINUTES, "shapes": shapes})
        self.dashboard.open_run(run)
        return f"Run {run} has started; it continues when you leave."

    @acts()
    async def action_beside(self) -> None:
        models = await in_thread(partial(all_models, None), "models")
        programs = await in_thread(partial(read_programs, self.session.hardware), "programs")
        named: dict[str, tuple[str, Model | Program | None]] = {"": ("nothing", None)}
        named |= {str(model.folder): (f"model {model.name}", model) for model in models}
        for source, found in programs.items():
            if isinstance(found, Program) and source != self._source:
                report = found.report
                named[str(source)] = f"{report.program} · {text.minute(report.created)}", found
        names = [(key, name) for key, (name, _) in named.items()]
        question = "Compare these choices with those of"
        chosen = await self.app.push_screen_wait(PickOne(question, names))
        if chosen is not None:
            self._beside = named[chosen][1]
            self._answers = {}
            self._list()
            self._ask_next()


# In words


_FUSED = " It counts what fusing the following operations saves; the times below do not."
_MODULES, _LINES = 3, 4  # of a product that are named
_OUTCOMES = {
    Outcome.CHOSEN: "The compile took this kernel.",
    Outcome.PREDICTED: "No compile has asked Diode for it: this is what it would choose.",
    Outcome.LEFT: "Diode makes no choice here.",
}


def summary(
    program: Program, views: Sequence[ProductView], beside: Model | Program | None
) -> Content:
    """Return the sums over all products, and what a reader has to know."""
    report = replace(program.report, products=tuple(view.product for view in views))
    whole, saved = report.predicted_us, report.saved_us
    share = saved / (whole + saved) if whole + saved else 0.0
    left = sum(1 for v in views if v.product.why and not v.kernel)
    by = f" by {report.model}" if report.model else ", and no model is there for it"
    other = beside.report.program if isinstance(beside, Program) else beside and beside.reference
    lines = [
        Content.assemble(
            f"{sum(v.product.count for v in views):,} products for {report.hardware}{by}: "
            f"{text.microseconds(whole)} µs, which saves ",
            (f"{text.microseconds(saved)} µs ({100 * share:.0f} %)", "bold $text-success"),
            " beside the library's kernels",
            f"; {left} left" if left else "",
            f"; compared with {other} (2)" if other else "",
        )
    ]
    waits = sum(1 for v in views if not v.is_asked and v.product.problem is not None)
    told = "All times are predictions"
    if report.search_seconds:
        told += f"; a search would take about {text.seconds(report.search_seconds)}"
    told += f"; asking the model about {waits} more ..." if waits and program.model else "."
    model = program.model
    if model is not None and report.model not in ("", model.reference):
        told += f" {report.model} is not here: what the report does not say is {model.reference}'s."
    lines.append(Content.styled(" ".join((told, *report.notes)), "dim"))
    return Content("\n").join(lines)


def product_words(view: ProductView, views: Sequence[ProductView]) -> Content:
    """Return what one product gains and why, and where it is."""
    product = view.product
    lines = [Content.assemble((product.name, "bold"), f" ×{product.count}")]
    whole = math.fsum(max(0.0, v.saved_us or 0.0) for v in views)
    if view.saved_us is not None and view.saved_us > 0:
        lines.append(
            Content.assemble(
                ("saves ", "dim"),
                (f"{text.microseconds(view.saved_us)} µs in a step", "bold $text-success"),
                f", {100 * view.saved_us / whole:.0f} % of all that is saved",
            )
        )
    sure = "" if product.confidence is None else f", sure {product.confidence:.2f}"
    for name, us in (
        (f"{view.kernel}{sure}", product.predicted_us),
        ("ATen", product.library_us),
        ("best of DEFAULT", view.default_us),
    ):
        if us is not None:
            lines.append(Content(f"{text.microseconds(us):>10} µs  {name}"))
    if product.why:
        fused = _FUSED if view.is_fused else ""
        lines.append(Content(f"Why: {product.why}. {_OUTCOMES[product.outcome]}{fused}"))
    lines += _places(product)
    return Content("\n").join(lines)


def _places(product: Product) -> Iterator[Content]:
    """Yield each line of code that computes the product, with the modules that it is for."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for place in product.places:
        at = f"{place.file}:{place.line}" if place.file else ""
        times = f" ×{place.count}" if place.count > 1 else ""
        module = f"{place.module or 'outside of a module'}{times}"
        lines.setdefault((place.kind, at, place.code), []).append(module)
    for (kind, at, code), modules in list(lines.items())[:_LINES]:
        more = f" and {len(modules) - _MODULES} more" if len(modules) > _MODULES else ""
        named = f"{', '.join(modules[:_MODULES])}{more}"
        words = " ".join(filter(None, ("In", named, kind and f"({kind}),", at)))
        yield Content.assemble(f"{words.removesuffix(',')} ", (code, "dim"))
    if len(lines) > _LINES:
        yield Content.styled(f"and in {len(lines) - _LINES} more lines", "dim")
