"""Changes of the registry, so that they can be undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from diode_engine import paths, registry
from diode_engine.errors import DiodeError
from diode_engine.registry import ModelVersion


def prepare_default(reference: str, slug: str) -> Callable[[], None]:
    """For the undo of a roll-back: a function that makes this model, the present default, the
    default again, with the status that it has now."""
    model = registry.resolve(reference, slug)
    known = registry.facts_of(model, slug)

    def set_default() -> None:
        registry.set_default(model, slug, reason="the roll-back was undone")
        if known.status is not None:
            registry.set_verdict(model, known.status, known.gate or {}, slug)

    return set_default


@lru_cache(maxsize=64)
def can_roll_back(slug: str, version: int) -> bool:
    """Whether there is a promotion on this hardware to undo. `version` is that of the registry (see
    `registry_version`)."""
    try:
        registry.last_change(slug)
    except DiodeError:
        return False
    return True


def remove_model(model: ModelVersion) -> Callable[[], str] | None:
    """Remove the model and its aliases. Return a function that registers it again, with its
    aliases, tags and note, as the next version, and return its name; None where the model is
    broken, so that this is not possible. The last removed model is kept in a file in Diode's data
    directory."""
    folder = paths.data_dir() / "removed"
    archive = folder / "model.diode.zip"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        registry.export_model(model, archive, replace=True)
    except (DiodeError, OSError):
        registry.remove(model, aliases=True)
        return None
    known = registry.facts_of(model)
    aliases = [(name, slug) for slug in model.slugs
               for name, of in registry.aliases_for(slug).items()
               if of == model.reference_on(slug)]  # fmt: skip
    registry.remove(model, aliases=True)

    def restore() -> str:
        restored, _ = registry.import_model(archive, model.name)
        registry.tag(restored, known.tags)
        if known.note:
            registry.set_note(restored, known.note)
        for alias, slug in aliases:
            registry.set_alias(alias, restored, slug, reason="the deletion was undone")
        return restored.reference

    return restore


def set_tags(model: ModelVersion, tags: Sequence[str]) -> None:
    """Give the model these tags, and no others."""
    registry.tag(model, tags, [tag for tag in registry.facts_of(model).tags if tag not in tags])


def aliases_of(model: ModelVersion) -> tuple[str, ...]:
    """Return the model's aliases on its own hardware now, without the default, which is set by
    promoting a model."""
    reference, found = model.reference_on(model.slug), registry.aliases_for(model.slug)
    return tuple(name for name, of in found.items() if of == reference and name != registry.DEFAULT)


def set_aliases(model: ModelVersion, aliases: Sequence[str]) -> None:
    """Give the model these aliases, and no others."""
    now = aliases_of(model)
    for name in dict.fromkeys(aliases):
        if name not in now:
            registry.set_alias(name, model)
    for name in now:
        if name not in aliases:
            registry.remove_alias(name, model.slug)
