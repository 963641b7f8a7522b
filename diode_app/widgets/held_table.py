"""A table of rows that are at hand: predictions, a report's cases."""

from __future__ import annotations

from collections.abc import Sequence

from diode_app.data.pages import Page, PageQuery, Row, held_page
from diode_app.session import Session
from diode_app.widgets.table import PagedTable, TableColumn


class HeldTable(PagedTable):
    """Pages, sorts (by the values in the rows' records) and filters (by words) what `hold` was
    given; the order it was given in is the one without a sort."""

    def __init__(
        self,
        session: Session,
        columns: Sequence[TableColumn],
        *,
        what: str,
        sort: str | None = None,
        descending: bool = False,
        filter_hint: str = "words that a row has; -word for those without it",
        id: str | None = None,
    ) -> None:
        super().__init__(
            session, columns, None, what=what, sort=sort, descending=descending,
            filter_hint=filter_hint, id=id,
        )  # fmt: skip
        self._held: tuple[Row, ...] = ()

    def hold(self, rows: Sequence[Row]) -> None:
        """Shows these rows from now on."""
        self._held = tuple(rows)
        self.reload()

    async def fetch(self, query: PageQuery) -> Page:
        return held_page(self._held, query)
