"""Programs: what is known of the products that programs compile, and which kernels they get."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.programs import (
    PROGRAM_COLUMNS,
    Source,
    list_programs,
    parse_products,
    write_by_hand,
)
from diode_app.data.tables import Row
from diode_app.screens.base import ReaderIfReady
from diode_app.screens.filtered_list import ListScreen
from diode_app.screens.program import ProgramScreen
from diode_app.widgets.empty import EmptyState, Step
from diode_app.widgets.files import complete_path, existing_file
from diode_app.widgets.modals import Prompt
from diode_app.widgets.table import PagedTable
from diode_app.widgets.work import acts
from diode_engine.errors import ReportError

_HOW = (
    "diode-engine report -- python program.py   reports on a program\n"
    "DIODE_FEEDBACK={store} python program.py   shows what it benchmarks while it runs"
)
_SIZES = "Which products? Such as: mm 512 4096 1024 bf16 row/col x4, bmm 8 64 64 128"
_NEXT = (
    Step("A file", "screen.file", "A report, or a shapeset that diode-engine capture wrote.", "f"),
    Step("Sizes", "screen.sizes", "Type the products.", "n"),
)


class ProgramsScreen(ListScreen):
    """The list; Enter opens a program's page."""

    MODE = "programs"
    NEEDS_STORE = False
    ACTIONS = (
        Action("programs.open", "enter", "Open", "The products of this program.",
               "diode-engine report --file {file}", footer=False),
        Action("programs.file", "f", "File", "Open a report, or a shapeset that diode-engine "
               "capture wrote."),
        Action("programs.sizes", "n", "Sizes", "Type products, to see what would be chosen.",
               writes=True),
    )  # fmt: skip
    HEADLESS = (("Report on a program", "diode-engine report -- python PROGRAM"),)

    def body(self) -> ComposeResult:
        yield PagedTable(
            self.session, PROGRAM_COLUMNS, what="programs", sort="created", descending=True
        )
        yield EmptyState(
            "No program is known yet", "Run one with diode-engine report, or:", _NEXT,
            id="programs-none",
        )  # fmt: skip
        how = _HOW.format(store=self.session.location)
        yield Static(how, classes="words muted", markup=False)

    def values(self) -> dict[str, object]:
        return {"file": self.table.pointed if self.has_body else None}

    def reader(self) -> ReaderIfReady[tuple[Row, ...]]:
        return partial(list_programs, here=self.session.hardware)

    def show(self, snapshot: tuple[Row, ...]) -> None:
        self.query_one(PagedTable).show_rows(snapshot)
        self.show_empty(not snapshot, "PagedTable")

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "open":
            return self.has_body and self.table.pointed is not None
        return super().check_action(action, parameters)

    def open(self, key: str) -> None:
        self.app.push_screen(ProgramScreen(self.session, Source.named(key)))

    @acts()
    async def action_file(self) -> None:
        given = await self.app.push_screen_wait(
            Prompt("Which file?", f"{Path.cwd()}/", check=existing_file, suggest=complete_path)
        )
        if given is not None:
            self.open(str(Path(given).expanduser().absolute()))

    @acts(writes=True)
    async def action_sizes(self) -> None:
        given = await self.app.push_screen_wait(Prompt(_SIZES, check=_mistake))
        if given is not None:
            write = partial(write_by_hand, given, self.session.hardware)
            self.open(str(await self.session.store.change(write, "sizes")))


def _mistake(given: str) -> str | None:
    try:
        return None if parse_products(given) else "Type an operator, M, N and K."
    except ReportError as error:
        return str(error)
