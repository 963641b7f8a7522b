"""Everything about all models, as a listing or a screen shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diode_engine.core.hardware import Hardware
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.manifest import Manifest
from diode_engine.registry import facts
from diode_engine.registry.aliases import aliases_for
from diode_engine.registry.choice import Match, rank
from diode_engine.registry.facts import ModelFacts, ModelStatus
from diode_engine.registry.sources import ModelVersion, list_gpus, list_models
from diode_engine.registry.versions import status_of


@dataclass(frozen=True)
class ModelEntry:
    """A model and what is known of it. `manifest` is None where it cannot be read; `error` then
    says why. `aliases` are all that point to it, those of another hardware than its folder's with
    the slug before them. `taken` says why it is taken, by the names of those of its GPUs for which
    it is."""

    model: ModelVersion
    manifest: Manifest | None
    error: str | None
    facts: ModelFacts
    status: ModelStatus
    aliases: tuple[str, ...]
    taken: Mapping[str, Match]

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
            "taken": bool(self.taken),
            "taken_on": list(self.taken),
            "error": self.error,
            "hardware": model.slug if m is None else m.hardware.name,
            "gpus": [] if m is None else list(m.gpu_names),
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
    for slug in list_gpus(models):
        aliases[slug] = aliases_for(slug, lambda error: problems.setdefault(str(error)))
        try:
            documents[slug] = facts.read(slug)
        except RegistryError:  # told already, with its aliases
            documents[slug] = facts.Document()
        there = {m.reference_on(slug) for m in models}
        for alias, reference in aliases[slug].items():
            if reference not in there:
                problems[
                    f"The alias {alias} of {slug} points to {reference}, which does not exist; "
                    "make it point to another model."
                ] = None
    manifests = [_manifest(model) for model in models]
    taken = _taken(models, [manifest for manifest, _ in manifests if manifest is not None])
    entries = []
    for model, (manifest, why) in zip(models, manifests, strict=True):
        known = documents[model.slug].find(model.reference)
        status = status_of(model, known=known)
        names = tuple(
            alias if slug == model.slug else f"{slug}/{alias}"
            for slug in model.slugs
            for alias, reference in aliases[slug].items()
            if reference == model.reference_on(slug)
        )
        chosen = {} if manifest is None else {
            record.hardware.name: match for record in manifest.records
            if (match := taken.get((record.hardware, manifest.purpose))) and match.model == model
        }  # fmt: skip
        entries.append(ModelEntry(model, manifest, why, known, status, names, chosen))
    return Overview(tuple(entries), tuple(problems))


def list_available_models() -> list[dict[str, Any]]:
    """The registered models: the user's, those that Diode ships and those of installed packages,
    as `diode-engine models list --json` has them: model (name@version), hardware, status,
    aliases, efficiency (geometric mean on its held-out problems), taken (whether it is the one
    for its hardware), error (why it cannot be read, else None), …"""
    return [entry.to_dict() for entry in overview().entries]


def _taken(
    models: list[ModelVersion], manifests: list[Manifest]
) -> dict[tuple[Hardware, str], Match]:
    """The model that is taken for each hardware and purpose for which there are models."""
    kinds = dict.fromkeys((r.hardware, m.purpose) for m in manifests for r in m.records)
    ranked = {kind: rank(models, *kind, lambda text: None) for kind in kinds}
    return {kind: found[0] for kind, found in ranked.items() if found}


def _manifest(model: ModelVersion) -> tuple[Manifest | None, str | None]:
    try:
        return model.manifest, None
    except ModelError as error:
        return None, str(error)
