"""What the palette (`:`) finds besides the actions: runs, models, problems, saved filters
and settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.command import Hit, Hits, Provider

from diode_app import text
from diode_app.data.progress import outcome
from diode_app.data.run_columns import Listed, cell
from diode_app.data.threads import in_thread
from diode_app.links import Link, link, page_of
from diode_app.session import Session
from diode_app.settings import Settings, sentence
from diode_engine.errors import DiodeError

if TYPE_CHECKING:
    from diode_engine.store import Store

_RUNS = 500  # so many of the last ones are searched
_MARGIN = 12  # of the palette's lines
_PROBLEMS = 8  # of a query that are shown


@dataclass(frozen=True)
class Found:
    """Something that was found: `words` are searched and shown, `action` opens it."""

    words: str
    help: str
    action: Callable[[], Any]


class Everything(Provider):
    """Reads the store and the registry when the palette is opened. Reads the store once more for an
    input that may be a problem: its number, or a filter query such as op:bmm."""

    async def startup(self) -> None:
        # A task of its own: the next letter cancels the search for the letters before, and would
        # cancel the reading with it if the search read itself.
        self._gathering = asyncio.create_task(self._gathered())

    async def _gathered(self) -> list[Found]:
        found = [*self._settings(), *self._filters()]
        if self._session.store.last.ready:
            # The screen behind the palette says what is wrong with the store.
            with contextlib.suppress(DiodeError):
                found += await self._session.store.read(self._runs)
        return found + await in_thread(lambda: [*self._models(), *self._programs()], "search")

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        if (wanted := await self._linked(query.strip())) is not None:
            yield Hit(2.0, str(wanted), self._open(wanted), help="Open what this link names.")
        for found in await asyncio.shield(self._gathering):
            if (match := matcher.match(found.words)) > 0:
                shown = text.shorten(found.words, self.app.size.width - _MARGIN)
                yield Hit(match, matcher.highlight(shown), found.action, help=found.help)
        if not self._session.store.last.ready:
            return
        for found in await self._session.store.read(lambda store: self._problems(store, query)):
            yield Hit(1.0, found.words, found.action, help=found.help)

    async def _linked(self, query: str) -> Link | None:
        """Return the link that this is, as `y` copies it, if it leads to something."""
        try:
            wanted = link(query)
            if wanted is None or not wanted.name:
                return None  # a place: one of the actions
            await page_of(self._session, wanted)
        except DiodeError:
            return None
        return wanted

    @property
    def _session(self) -> Session:
        app: Any = self.app
        session: Session = app.session
        return session

    def _open(self, link: Link) -> Callable[[], Any]:
        app: Any = self.app  # a DiodeApp, whose module imports this one
        return partial(app.open_link, link)

    def _runs(self, store: Store) -> list[Found]:
        from diode_engine.runs import find

        found = []
        for status in find(store, limit=_RUNS):
            run, listed = status.run, Listed(status)
            words = [f"run {run.id}", run.kind, text.state(outcome(status)), *run.tags]
            words += [cell(listed, "data"), cell(listed, "note")]
            shown = " · ".join(filter(None, words))
            found.append(Found(shown, "Open this run.", self._open(Link("runs", str(run.id)))))
        return found

    def _problems(self, store: Store, query: str) -> list[Found]:
        from diode_engine.store.query import count_problems, problems

        words = query.strip().removeprefix("problem").strip()
        asked = f"id:{words}" if words.isdecimal() else words
        if ":" not in asked and not any(sign in asked for sign in "<>="):
            return []
        try:
            rows, total = problems(store, asked, limit=_PROBLEMS), count_problems(store, asked)
        except DiodeError:
            return []  # no query (yet)
        found = [
            Found(
                f"problem {row.number} · {row.problem}",
                f"Open this problem. Best {text.microseconds(row.best_us) or text.NONE} µs.",
                self._open(Link("data", str(row.number))),
            )
            for row in rows
        ]
        if total > 1:
            listed = Found(
                f"{total:,} problems · {asked}", "List them on Data.",
                self._open(Link("data", filter=asked)),
            )  # fmt: skip
            found.insert(0, listed)
        return found

    def _models(self) -> list[Found]:
        from diode_engine import registry

        found = []
        for entry in registry.overview().entries:
            words = [f"model {entry.model.reference}", *entry.aliases, *entry.facts.tags]
            if entry.manifest is not None:
                words += [entry.manifest.family, entry.manifest.hardware.name]
            found.append(
                Found(" · ".join(filter(None, [*words, entry.facts.note])), "Open this model.",
                      self._open(Link("models", str(entry.model.folder))))
            )  # fmt: skip
        return found

    def _programs(self) -> Iterable[Found]:
        from diode_app.data.program import list_programs

        for row in list_programs(None, None):
            words = f"program {row.record['program']} · {row.record['kind']}"
            yield Found(words, "Open this program.", self._open(Link("programs", row.key)))

    def _settings(self) -> Iterable[Found]:
        for field in fields(Settings):
            name = field.name.replace("_", " ")
            yield Found(f"setting {name}", sentence(field.name), self._open(Link("settings")))

    def _filters(self) -> Iterable[Found]:
        for name, query in self._session.settings.filters.items():
            place, _, words = query.partition(" ")
            yield Found(
                f"filter {name} · {' '.join(words.split())}", f"List them on {place}.",
                self._open(Link(place, filter=words)),
            )  # fmt: skip
