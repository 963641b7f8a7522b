"""Everything about all models, as a listing or a screen shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diode_engine.core.hardware import Hardware
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.manifest import Manifest
from diode_engine.registry import facts
from diode_engine.registry.aliases import aliases_in
from diode_engine.registry.choice import Match, rank
from diode_engine.registry.facts import ModelFacts, ModelStatus
from diode_engine.registry.sources import ModelVersion, list_models, sources
from diode_engine.registry.versions import status_of


@dataclass(frozen=True)
class ModelEntry:
    """A model and what is known of it. `manifest` is None where it cannot be read; `error` then
    says why. `aliases` are all that point to it. `taken` says why it is taken for its own hardware;
    None where another model is."""

    model: ModelVersion
    manifest: Manifest | None
    error: str | None
    facts: ModelFacts
    status: ModelStatus
    aliases: tuple[str, ...]
    taken: Match | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        m, model = self.manifest, self.model
        efficiency = None if m is None else m.metrics.get("efficiency")
        return {
            "model": model.reference,
            "name": model.name,
            "version": model.version,
            "folder": str(model.folder),
            "source": None if model.source is None else str(model.source.kind),
            "from": None if model.source is None else model.source.label,
            "status": str(self.status),
            "aliases": list(self.aliases),
            "tags": list(self.facts.tags),
            "note": self.facts.note,
            "taken": self.taken is not None,
            "error": self.error,
            "hardware": model.slug if m is None else m.hardware.name,
            "family": None if m is None else m.family,
            "problems": None if m is None else m.data.problems,
            "timings": None if m is None else m.data.timings,
            "efficiency": efficiency if isinstance(efficiency, float) else None,
            "torch": None if m is None else list(m.torch),
            "triton": None if m is None else list(m.triton),
            "created": None if m is None else m.created,
        }


@dataclass(frozen=True)
class Overview:
    """All registered models, by hardware, name and version, and a sentence for each broken file of
    the registry."""

    entries: tuple[ModelEntry, ...]
    problems: tuple[str, ...]


def overview() -> Overview:
    """The registry as it is now. Never raises: what cannot be read is described in its place."""
    models = list_models()
    problems: dict[str, None] = {}
    documents = {}
    aliases = {}
    for slug in dict.fromkeys(m.slug for m in models):
        aliases[slug] = _aliases(slug, problems)
        try:
            documents[slug] = facts.read(slug)
        except RegistryError:  # told already, with its aliases
            documents[slug] = facts.Document()
        there = {m.reference for m in models if m.slug == slug}
        for alias, reference in aliases[slug].items():
            if reference not in there:
                problems[
                    f"The alias {alias} of {slug} points to {reference}, which does not exist; "
                    "make it point to another model."
                ] = None
    taken = _taken(models)
    entries = []
    for model in models:
        manifest, why = _manifest(model)
        known = documents[model.slug].of(model.reference)
        names = (a for a, r in aliases[model.slug].items() if r == model.reference)
        chosen = next((match for match in taken if match.model == model), None)
        entries.append(
            ModelEntry(model, manifest, why, known, status_of(model, known), tuple(names), chosen)
        )
    return Overview(tuple(entries), tuple(problems))


def _aliases(slug: str, problems: dict[str, None]) -> dict[str, str]:
    """What the aliases of this hardware point to; sentences on broken ones are added to
    `problems`."""
    out: dict[str, str] = {}
    for source in reversed(sources()):
        try:
            out.update(aliases_in(source, slug))
        except RegistryError as error:
            problems[str(error)] = None
    return out


def _taken(models: list[ModelVersion]) -> list[Match]:
    """The model that is taken for each hardware and purpose for which there are models."""
    kinds: dict[tuple[Hardware, str], None] = {}
    for model in models:
        manifest, _ = _manifest(model)
        if manifest is not None:
            kinds[manifest.hardware, manifest.purpose] = None
    ranked = [rank(models, hardware, purpose, lambda text: None) for hardware, purpose in kinds]
    return [found[0] for found in ranked if found]


def _manifest(model: ModelVersion) -> tuple[Manifest | None, str | None]:
    try:
        return model.manifest, None
    except ModelError as error:
        return None, str(error)
