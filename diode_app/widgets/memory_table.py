"""A table of rows that are in memory: predictions, a report's cases."""

from __future__ import annotations

from collections.abc import Sequence

from diode_app.data.pages import Page, PageQuery, Row, page_in_memory
from diode_app.session import Session
from diode_app.widgets.table import PagedTable
from diode_app.widgets.table_columns import TableColumn


class MemoryTable(PagedTable):
    """Pages, sorts (by the values in the rows' records) and filters (by words) the rows of
    `show_rows`. Without a sort they keep the order in which they were given."""

    def __init__(
        self,
        session: Session,
        columns: Sequence[TableColumn],
        *,
        what: str,
        sort: str | None = None,
        descending: bool = False,
        filter_hint: str = "words that a row has; -word for those without it",
        wraps: bool = False,
        id: str | None = None,
    ) -> None:
        super().__init__(
            session, columns, None, what=what, sort=sort, descending=descending,
            filter_hint=filter_hint, wraps=wraps, id=id,
        )  # fmt: skip
        self._rows_in_memory: tuple[Row, ...] = ()

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Shows these rows from now on."""
        self._rows_in_memory = tuple(rows)
        self.reload()

    async def fetch(self, query: PageQuery) -> Page:
        return page_in_memory(self._rows_in_memory, query)
