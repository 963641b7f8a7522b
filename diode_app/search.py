"""What the palette (`:`) finds: actions, runs, models, programs, problems, saved filters, themes
and settings, one line each, the best ones first."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from diode_app import text
from diode_app.data.background import in_thread
from diode_app.data.run_results import data_of, outcome, remarks
from diode_app.links import Link, link, page_of
from diode_app.session import Session
from diode_app.settings import Settings
from diode_app.themes import NAMES
from diode_engine import registry
from diode_engine.errors import DiodeError, QueryError
from diode_engine.runs import find
from diode_engine.store import Store
from diode_engine.store.query import count_problems, problems

_RUNS = 500  # so many of the last ones are searched
_PROBLEMS = 8  # of a query that are shown
# How well something fits an input: its words begin with all that was typed, they have it, or they
# only have its letters in this order. A link, and a problem that was asked for, fit better.
_LINKED, _PROBLEM, _BEGINS, _HAS, _LETTERS = 5.0, 4.0, 3.0, 2.0, 1.0
_ACTION = 0.2  # before other things that fit as well


@dataclass(frozen=True)
class Found:
    """Something that was found: `words` are searched and shown, `action` opens it. Of what fits an
    input equally well, the greater `weight` comes first."""

    words: str
    help: str
    action: Callable[[], Any]
    weight: float = 0.0


class Everything(Provider):
    """Reads the store and the registry when the palette is opened. Reads the store once more for an
    input that may be a problem: its number, a filter query such as op:bmm, or its operator, type
    and sizes, such as bmm 2048."""

    async def startup(self) -> None:
        # A task of its own: the next letter cancels the search for the letters before, and would
        # cancel the reading with it if the search read itself.
        self._gathering = asyncio.create_task(self._gathered())

    async def _gathered(self) -> list[Found]:
        found = [*self._themes(), *self._settings(), *self._filters()]
        if self._session.store.last.ready:
            # The screen behind the palette says what is wrong with the store.
            with contextlib.suppress(DiodeError):
                found += await self._session.store.read(self._runs)
        return found + await in_thread(lambda: [*self._models(), *self._programs()], "search")

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        if (wanted := await self._linked(query.strip())) is not None:
            found = Found(str(wanted), "Open what this link names.", self._open(wanted))
            yield self._hit(_LINKED, found, query)
        for found in [*self._actions(), *await asyncio.shield(self._gathering)]:
            if score := _fit(query, found.words, matcher.match):
                yield self._hit(score + found.weight, found, query)
        if not self._session.store.last.ready:
            return
        problems = await self._session.store.read(lambda store: self._problems(store, query))
        for place, found in enumerate(problems):
            yield self._hit(_PROBLEM - place / 100, found, query)

    async def discover(self) -> Hits:
        for found in sorted(self._actions(), key=lambda found: found.words):
            yield DiscoveryHit(self._line(found, ""), found.action, found.words)

    def _hit(self, score: float, found: Found, query: str) -> Hit:
        return Hit(score, self._line(found, query), found.action, found.words)

    def _line(self, found: Found, query: str) -> Content:
        """Return what was found on one line, its words before what they mean."""
        shown = Content(found.words)
        if query.strip() and self.match_style is not None:
            words = "|".join(map(re.escape, query.split()))
            shown = shown.highlight_regex(re.compile(words, re.IGNORECASE), style=self.match_style)
        return Content.assemble(shown, "  ", (found.help, "dim not bold"))

    def _actions(self) -> Iterable[Found]:
        for command in self.app.get_system_commands(self.screen):
            yield Found(command.title, command.help, command.callback, _ACTION)

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
    def _dashboard(self) -> Any:  # its module imports this one
        return self.app

    @property
    def _session(self) -> Session:
        session: Session = self._dashboard.session
        return session

    def _open(self, link: Link) -> Callable[[], Any]:
        return partial(self._dashboard.open_link, link)

    def _runs(self, store: Store) -> list[Found]:
        found: list[Found] = []
        for status in find(store, limit=_RUNS):
            run = status.run
            words = [f"run {run.id}", run.kind, text.state(outcome(status)), *run.tags]
            words += [data_of(status), remarks(status)]
            shown = " · ".join(filter(None, words))
            newest = 0.1 / (1 + len(found))
            link = Link("runs", str(run.id))
            found.append(Found(shown, "Open this run.", self._open(link), newest))
        return found

    def _problems(self, store: Store, query: str) -> list[Found]:
        asked = _problem_query(query.strip().removeprefix("problem").strip())
        if asked is None:
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
        from diode_app.data.programs import list_programs

        for row in list_programs(None, None):
            words = f"program {row.record['program']} · {row.record['kind']}"
            yield Found(words, "Open this program.", self._open(Link("programs", row.key)))

    def _themes(self) -> Iterable[Found]:
        use = self._dashboard.change_settings
        for name in NAMES:
            yield Found(f"theme {name}", "Use these colours.", partial(use, theme=name))

    def _settings(self) -> Iterable[Found]:
        for field in fields(Settings):
            name = field.name.replace("_", " ")
            yield Found(f"setting {name}", field.metadata["sentence"], self._open(Link("settings")))

    def _filters(self) -> Iterable[Found]:
        for name, query in self._session.settings.filters.items():
            place, _, words = query.partition(" ")
            yield Found(
                f"filter {name} · {' '.join(words.split())}", f"List them on {place}.",
                self._open(Link(place, filter=words)),
            )  # fmt: skip


def _fit(query: str, words: str, match: Callable[[str], float]) -> float:
    """Return how well the words fit an input; 0 where they do not."""
    typed, low = query.lower().split(), words.lower()
    if not all(word in low for word in typed):
        return _LETTERS * min(1.0, score) / 2 if (score := match(words)) > 0 else 0.0
    begins = all(re.search(rf"(?<![a-z0-9]){re.escape(word)}", low) for word in typed)
    covered = sum(map(len, typed)) / max(1, len(low.partition(" · ")[0]))
    return (_BEGINS if begins else _HAS) + min(1.0, covered) / 2


def _problem_query(words: str) -> str | None:
    """Return the filter query of an input, if it may be about problems: itself, or what its
    operator, type and sizes mean."""
    from diode_app.data.filters import query_language

    if words.isdecimal():
        return f"id:{words}"
    if any(sign in words for sign in ":<>="):
        return words
    language = query_language("data")
    terms = []
    for word in words.split():
        for term in (f"size:{word}", f"op:{word}", f"dtype:{word}"):
            with contextlib.suppress(QueryError):
                language.parse(term)
                terms.append(term)
                break
        else:
            return None
    return " ".join(terms) or None
