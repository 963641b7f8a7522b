"""Changes of the registry that can be undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from diode_engine import paths
from diode_engine.errors import DiodeError

if TYPE_CHECKING:
    from diode_engine.registry import ModelVersion


def defaulted_again(reference: str, slug: str) -> Callable[[], None]:
    """For the undo of a roll-back: a function that makes this model, the present default, the
    default again, with the status that it has now."""
    from diode_engine import registry

    model = registry.resolve(reference, slug)
    known = registry.facts_of(model, slug)

    def again() -> None:
        registry.set_default(model, slug, reason="the roll-back was undone")
        if known.status is not None:
            registry.set_verdict(model, known.status, known.gate or {}, slug)

    return again


def removed_model(model: ModelVersion) -> Callable[[], str] | None:
    """Removes the model and its aliases. Returns a function that registers it again, with its
    aliases, tags and note, as the next version, and returns its name; None where the model is
    broken, so that this is not possible. The last removed model is kept in a file in Diode's data
    directory."""
    from diode_engine import registry

    folder = paths.data_dir() / "removed"
    kept = folder / "model.diode.zip"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        registry.export_model(model, kept, replace=True)
    except (DiodeError, OSError):
        registry.remove(model, aliases=True)
        return None
    known = registry.facts_of(model)
    aliases = [(name, slug) for slug in model.slugs
               for name, of in registry.aliases_for(slug).items()
               if of == model.reference_on(slug)]  # fmt: skip
    registry.remove(model, aliases=True)

    def again() -> str:
        there, _ = registry.import_model(kept, model.name)
        registry.tag(there, known.tags)
        if known.note:
            registry.set_note(there, known.note)
        for alias, slug in aliases:
            registry.set_alias(alias, there, slug, reason="the deletion was undone")
        return there.reference

    return again
