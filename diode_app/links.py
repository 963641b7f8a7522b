"""Links to places of the dashboard: `run/11`, `problem/501`, `model/mine@1`, `data`. A model may be
named with its hardware, as in `model/nvidia-h200/mine@1`.

`diode-tui --open LINK` opens one; `y` shows this command for the present place.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from diode_app.data.background import in_thread
from diode_app.data.filters import query_language
from diode_app.screens.base import DiodeScreen
from diode_app.screens.places import PLACES
from diode_app.session import Session
from diode_app.settings import FILTERED
from diode_engine.errors import DiodeError, SeveralModelsError
from diode_engine.location import Location

if TYPE_CHECKING:
    from diode_engine.store import Store

# The pages that are opened by a name or number, and the place that each belongs to.
_PAGES = {"run": "runs", "problem": "data", "model": "models", "program": "programs"}


class LinkError(DiodeError):
    """There is no such place."""


@dataclass(frozen=True)
class Link:
    """A place, by its mode; with a `name`, the page of the run, problem or model of this name.
    `filter` is the query of the place's list."""

    place: str
    name: str = ""
    filter: str = ""

    def __str__(self) -> str:
        page = next((page for page, place in _PAGES.items() if place == self.place), "")
        return f"{page}/{self.name}" if self.name else self.place

    def command(self, store: Location, *, read_only: bool = False) -> str:
        """Return the command that opens it."""
        words = ["diode-tui", f"--store={store}", *(["--read-only"] if read_only else [])]
        words.append(f"--open={self}")
        if self.filter:
            words.append(f"--filter={self.filter}")
        return shlex.join(words)


def link(given: str | None, query: str | None = None) -> Link | None:
    """Return the link with this text; None for an empty text. A query alone is a query on problems.
    Raises LinkError where there is no such place, or its list takes no filter, and QueryError."""
    if not given:
        return None if query is None else link("data", query)
    page, _, name = given.partition("/")
    modes = [place.mode for place in PLACES]
    if name and page in _PAGES:
        found = Link(_PAGES[page], name)
        if page == "run" and not name.isdecimal():
            raise LinkError(f"{name} is not the number of a run, as in run/11.")
    elif not name and page in modes:
        found = Link(page)
    else:
        raise LinkError(
            f"There is nothing to open at {given!r}; there are run/NUMBER, problem/NUMBER, "
            f"model/NAME, program/FILE and {', '.join(modes)}."
        )
    if query is None:
        return found
    if found.name or found.place not in FILTERED:
        raise LinkError(f"{given} takes no filter; only {', '.join(FILTERED)} do.")
    if found.place != "sql":
        query_language(found.place).parse(query)
    return Link(found.place, filter=query)


def link_to(screen: Screen[Any]) -> Link | None:
    """Return the link to what is shown now; None where there is none, as for a form."""
    if not isinstance(screen, DiodeScreen):
        return None
    if screen.LINK:
        name = screen.values().get(screen.LINK)
        return Link(screen.MODE, str(name)) if name is not None else None
    if screen.MODE not in [place.mode for place in PLACES] or screen.HELP_TITLE:
        return None  # a page, which only another screen opens
    return Link(screen.MODE, filter=screen.query_text if screen.has_body else "")


async def page_of(session: Session, wanted: Link) -> Screen[Any] | None:
    """Return the page of the run, problem or model that a link names, to be shown in front of its
    place; None for a link to a place alone. Raises DiodeError where there is no such thing."""
    if not wanted.name:
        return None
    if wanted.place == "runs":
        from diode_app.screens.run import RunScreen

        number = int(wanted.name)
        await session.store.read(lambda store: store.run(number))
        return RunScreen(session, number)
    if wanted.place == "programs":
        from diode_app.data.programs import Source, read_program
        from diode_app.screens.program import ProgramScreen

        source = Source.named(wanted.name)
        if source.path is not None:
            await in_thread(lambda: read_program(source, None), "program")
        return ProgramScreen(session, source)
    if wanted.place == "models":
        from diode_app.screens.model import ModelScreen

        return ModelScreen(session, await in_thread(lambda: _folder(wanted.name), "model"))
    from diode_app.screens.problem import ProblemScreen

    return ProblemScreen(
        session, *await session.store.read(lambda store: _problem(store, wanted.name))
    )


def _folder(reference: str) -> str:
    from diode_engine import registry

    slug, _, name = reference.rpartition("/")
    if slug in {model.slug for model in registry.list_models()}:
        return str(registry.resolve(name, slug).folder)
    try:
        return str(registry.resolve(reference).folder)
    except SeveralModelsError as several:
        links = ", ".join(f"model/{slug}/{reference}" for slug in several.slugs)
        raise LinkError(f"Several GPUs have a model {reference}; open one of {links}.") from None


def _problem(store: Store, name: str) -> tuple[str, int]:
    """Return the content key and the environment of a problem, by its number or the beginning of
    its key."""
    from diode_engine.store.query import problems

    found = problems(store, f"id:{name}" if name.isdecimal() else f"key:{name}", limit=1)
    if not found:
        raise LinkError(f"There is no problem {name} in {store.location}.")
    return found[0].problem.key, found[0].environment_number
