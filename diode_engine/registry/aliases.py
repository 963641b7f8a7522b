"""Names that point to a version: `default`, for the model that is taken, and any others.

An alias belongs to one hardware; the model that it names has a record of this hardware. The user's
aliases come before those that Diode ships, and these before a package's. Every change of a user's
alias is a line of the history; `rollback` undoes the last change of the default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from diode_engine.documents import Limits, Malformed, read_json
from diode_engine.errors import NoSuchModelError, RegistryError
from diode_engine.models.artifact import load_artifact
from diode_engine.registry import facts
from diode_engine.registry.facts import Document, Event, HistoryAction, ModelStatus
from diode_engine.registry.sources import Kind, ModelSource, ModelVersion, list_models, sources

DEFAULT = "default"
FILE = "aliases.json"
_ALIASES = Limits(bytes=1 << 20)  # the shipped ones have 22
_NAME = re.compile(r"[a-z][a-z0-9._-]{0,63}")


def aliases_in(source: ModelSource, slug: str) -> Mapping[str, str]:
    """The references that a source's aliases point to on this hardware. Raises RegistryError where
    the file is broken."""
    if source.kind is Kind.USER:
        return facts.read(slug).aliases
    path = source.root / slug / FILE
    try:
        given = read_json(path, _ALIASES)
    except FileNotFoundError:
        return {}
    except (OSError, Malformed):
        given = None
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given.values()):
        raise RegistryError(f"{path} is not an alias file; install Diode, or the package, again.")
    return given


def alias_targets(
    alias: str, slug: str, models: Sequence[ModelVersion] | None = None
) -> Iterator[tuple[ModelSource, ModelVersion | RegistryError]]:
    """For each source that has this alias, the one with precedence first: the model that it points
    to, or the error that says why there is none. `models` are those of `list_models`, where they
    are known."""
    models = list_models() if models is None else models
    for source in sources():
        try:
            reference = aliases_in(source, slug).get(alias)
        except RegistryError as error:
            yield source, error
            continue
        if reference is None:
            continue
        found = [m for m in models if m.reference_on(slug) == reference]
        # Two sources may have a model of this reference: the alias means the one of its own source.
        found.sort(key=lambda m: m.source != source)
        lost = RegistryError(
            f"The alias {alias} of {slug} ({source.label}) points to {reference}, which does not "
            "exist; make it point to another model."
        )
        yield source, found[0] if found else lost


def aliased(
    alias: str, slug: str, models: Sequence[ModelVersion] | None = None
) -> ModelVersion | None:
    """The model that this alias points to on this hardware; None where there is no such alias.
    Raises RegistryError where it points to no model, or its file is broken. `models` are as in
    `alias_targets`."""
    for _, found in alias_targets(alias, slug, models):
        if isinstance(found, RegistryError):
            raise found
        return found
    return None


def default_for(slug: str) -> ModelVersion | None:
    """The model that the alias "default" names for this hardware; None and raises as
    `aliased`."""
    return aliased(DEFAULT, slug)


def aliases_for(slug: str, tell: Callable[[RegistryError], object] | None = None) -> dict[str, str]:
    """The references that aliases point to on this hardware, by precedence. `tell` is called with
    the errors of broken files; without it they are raised."""
    out: dict[str, str] = {}
    for source in reversed(sources()):
        try:
            out.update(aliases_in(source, slug))
        except RegistryError as error:
            if tell is None:
                raise
            tell(error)
    return out


def check_alias(alias: str) -> None:
    """Raises RegistryError where the alias is not a valid one, or a model has this name."""
    if not _NAME.fullmatch(alias):
        raise RegistryError(
            f"{alias!r} cannot be an alias; use lower-case letters, digits, '.', '_' and '-', 64 "
            "at most, a letter first."
        )
    if any(m.name == alias for m in list_models()):
        raise RegistryError(
            f"There is a model that is called {alias}; an alias needs a name of its own."
        )


def set_alias(
    alias: str,
    model: ModelVersion,
    slug: str | None = None,
    *,
    action: HistoryAction = HistoryAction.ALIAS,
    reason: str = "",
    forced: bool = False,
) -> bool:
    """Makes the alias of this hardware (None: that of the model's folder) point to this registered
    model; False where it does already. The history keeps what was done and why. Raises
    RegistryError where the name cannot be an alias, the model is not registered or has no record of
    the hardware, or the registry cannot be written."""
    check_registered(model)
    check_alias(alias)
    slug = slug or model.slug
    if slug not in model.slugs:
        raise RegistryError(
            f"{model.reference} has no record of {slug}, but of: {', '.join(model.slugs)}."
        )
    reference = model.reference_on(slug)
    with facts.changing(slug) as document:
        before = document.aliases.get(alias)
        if before == reference:
            return False
        document.aliases[alias] = reference
        document.history.append(
            Event(action, reference, alias, before, reason=reason, forced=forced)
        )
    return True


def set_default(model: ModelVersion, slug: str | None = None, *, reason: str = "") -> None:
    """Makes this the model that is taken for this hardware (None: for all that it has a record of),
    without asking the gate. Raises RegistryError as `set_alias` does."""
    for each in model.slugs if slug is None else (slug,):
        set_alias(DEFAULT, model, each, reason=reason)


def remove_alias(alias: str, slug: str) -> None:
    """Removes the user's alias; one of the same name that Diode ships counts again. Raises
    NoSuchModelError where the user has none."""
    with facts.changing(slug) as document:
        if alias not in document.aliases:
            raise NoSuchModelError(f"You have no alias {alias} for {slug}.")
        before = document.aliases.pop(alias)
        document.history.append(Event(HistoryAction.UNALIAS, None, alias, before))


def rollback(slug: str, *, reason: str = "") -> ModelVersion | None:
    """Makes the default of this hardware what it was before, and returns that model. Returns None
    where the user had no default before, so that Diode's own counts again. The model that is
    replaced gets the status retired.

    Raises NoSuchModelError where there is no earlier model, RegistryError where the earlier model
    was removed, ModelError where it cannot be loaded any more.
    """
    with facts.changing(slug) as document:
        now, before = _last_change(document, slug)
        model = None
        if before is None:
            del document.aliases[DEFAULT]
        else:
            model = _still_there(before, slug)
            document.aliases[DEFAULT] = before
        document.history.append(Event(HistoryAction.ROLLBACK, before, DEFAULT, now, reason=reason))
        document.models[now] = replace(document.find(now), status=ModelStatus.RETIRED)
    return model


def last_change(slug: str) -> tuple[str, str | None]:
    """(what the user's default is, what it would be after `rollback`). Raises NoSuchModelError
    where there is no change to undo."""
    return _last_change(facts.read(slug), slug)


def _last_change(document: Document, slug: str) -> tuple[str, str | None]:
    earlier: list[str | None] = []  # a stack: a change adds to it, a rollback takes from it
    for event in document.history:
        if event.alias == DEFAULT:
            if event.event is not HistoryAction.ROLLBACK:
                earlier.append(event.before)
            elif earlier:
                earlier.pop()
    now = document.aliases.get(DEFAULT)
    if not earlier or now is None:
        raise NoSuchModelError(
            f"The alias {DEFAULT} of {slug} has not been changed here; there is nothing to go back "
            "to."
        )
    return now, earlier[-1]


def _still_there(reference: str, slug: str) -> ModelVersion:
    for model in list_models():
        if model.reference_on(slug) == reference:
            load_artifact(model.folder)
            return model
    raise RegistryError(
        f"{reference}, which {DEFAULT} stood for before, has been removed; promote another model."
    )


def history(slug: str) -> tuple[Event, ...]:
    """What was done to the models of this hardware, the latest last. Raises RegistryError where the
    user's registry is broken."""
    return tuple(facts.read(slug).history)


def check_registered(model: ModelVersion) -> None:
    """Raises RegistryError for a model in a folder that is not registered."""
    if model.source is None:
        raise RegistryError(f"The model in {model.folder} is not registered; register it first.")
