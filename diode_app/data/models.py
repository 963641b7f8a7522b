"""The registered models: which there are, which one is taken and why, all that is known of one, and
changes of the registry that can be undone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from diode_app import text
from diode_app.data.background import CommandError
from diode_app.data.comparison import NOT_COMPARABLE, Comparison, name_metric
from diode_app.data.store_access import StoreAccess
from diode_app.data.tables import Column, Row, make_row
from diode_engine import paths, registry
from diode_engine.core.checks import decode
from diode_engine.core.hardware import Hardware
from diode_engine.errors import DiodeError, NoSuchModelError, RecordError
from diode_engine.models.manifest import Manifest
from diode_engine.registry import Match, ModelEntry, ModelVersion
from diode_engine.store import Store
from diode_engine.store.run_query import runs
from diode_engine.validation.gate import GateVerdict


@dataclass(frozen=True)
class Models:
    """All models, by their folders, as they are and as rows of a table; `taken` is a sentence on
    the one that is taken here, `problems` are sentences on what is broken."""

    entries: Mapping[str, ModelEntry]
    rows: tuple[Row, ...]
    taken: str
    problems: tuple[str, ...]


def models(here: Hardware | None, gpus: int) -> Models:
    """Return the models as they are now. `here` is this machine's hardware, None while it is not
    known; `gpus` is how many it has."""
    found = registry.overview()
    entries = {str(entry.model.folder): entry for entry in found.entries}
    problems = [f"{entry.model.reference} cannot be used: {entry.error}"
                for entry in found.entries if entry.error is not None]  # fmt: skip
    return Models(
        entries=entries,
        rows=tuple(_row(folder, entry) for folder, entry in entries.items()),
        taken=_taken(here, gpus),
        problems=(*problems, *found.problems),
    )


def _taken(here: Hardware | None, gpus: int) -> str:
    if here is None:
        return "Looking at this machine's hardware ..."
    if not gpus:
        return "There is no GPU here, so none is in use; ● marks the one that each GPU would take."
    match = registry.best_for(here)
    if match is None:
        return f"No model serves the {here.name} here: train one, or import one."
    of = match.hardware.name
    alike = f"; the {of} that it is made for is {match.likeness:.2f} alike"
    borrowed = "" if of == here.name else alike
    return f"On the {here.name} here {match.model.reference} is taken: {why(match)}{borrowed}."


def why(match: Match) -> str:
    """Return why a model is taken, as a clause."""
    if match.default_of is None:
        parts = ["no default is set, and it is the newest that fits"]
    else:
        whose = {"user": "you made it the default", "shipped": "it is the default that Diode ships"}
        other = f"it is the default that the package {match.default_of.label} brings"
        parts = [whose.get(match.default_of.kind, other)]
    if match.differences:
        parts.append(f"but it was made with {', '.join(match.differences)}")
    return "; ".join(parts)


MODEL_COLUMNS = (
    Column("model", "model", "its name and version"),
    Column("hardware", "hardware", "the GPU that it is made for", rank=4),
    Column("status", "status", "draft (not judged), validated, rejected, retired, or broken",
           rank=3),
    Column("taken", "taken", "● it is what torch.compile takes on its GPU, and why", rank=2),
    Column("efficiency", "of best", "on held-out problems, a geometric mean; 1 is as fast as the "
           "best kernel that was measured", text.ratio, right=True, rank=1),
    Column("efficiency_p10", "p10", "a tenth of the problems has an efficiency below this",
           text.ratio, right=True, rank=5),
    Column("family", "family", "the kind of model: trees, network, ensemble, distilled", rank=6),
    Column("created", "created", "the day", rank=7),
    Column("aliases", "aliases", "other names; default is the one that is used", " ".join, rank=10),
    Column("tags", "tags", "your tags", " ".join, rank=9),
    Column("problems", "problems", "how many it was trained on", text.count, right=True, rank=12),
    Column("timings", "timings", "how many it was trained on", text.count, right=True, rank=11),
    Column("from", "from", "the registry or package that it lies in", rank=13),
    Column("note", "note", "your note", lambda note: note.replace("\n", " "), rank=8),
)  # fmt: skip


def _row(folder: str, entry: ModelEntry) -> Row:
    m = entry.manifest
    metrics: Mapping[str, Any] = {} if m is None else m.metrics
    record = {
        **entry.to_dict(),
        "efficiency_p10": metrics.get("efficiency_p10"),
        "calibration_error": metrics.get("calibration_error"),
        "bytes": None if m is None else sum(e["bytes"] for e in m.files),
    }
    ways = dict.fromkeys("default" if m.default_of else "newest" for m in entry.taken.values())
    taken = ", ".join(ways)
    shown = {
        "model": entry.model.reference,
        "hardware": ", ".join(record["gpus"]) or str(record["hardware"]),
        "status": "✗ broken" if m is None else str(entry.status),
        "taken": f"● {taken}" if taken else "",
        "created": "" if m is None else text.minute(m.created)[:10],
    }
    return make_row(folder, record, MODEL_COLUMNS, shown)


def facts(entry: ModelEntry) -> tuple[tuple[str, str], ...]:
    """Return the facts that a person wants to know of a model first."""
    m, known = entry.manifest, entry.facts
    found: dict[str, str] = {}
    if m is None:
        found["error"] = entry.error or ""
    else:
        of = m.metrics
        reached = text.ratio(of.get("efficiency"))
        others = ", ".join(
            f"{name} {value:.3f}" for name, value in of.get("efficiency_of_others", {}).items()
        )
        found |= {
            "of the best": reached
            and f"{reached} on {of.get('problems', 0):,} problems"
            + (f"; {others}" if others else ""),
            "hardware": ", ".join(
                f"{r.hardware.name} ({r.hardware.backend} {r.hardware.arch})" for r in m.records
            )
            + f", torch {', '.join(m.torch) or '?'}, Triton {', '.join(m.triton) or '?'}",
            "trained on": f"{m.data.timings:,} timings of {m.data.problems:,} problems"
            + (", also the ones models are judged on" if m.everything else ""),
            **_list_gpu_figures(m),
            "answers for": f"{', '.join(m.coverage.types)}; {len(m.coverage.kernels)} kernels",
            "made": f"{text.minute(m.created)} {text.zone()} by Diode {m.diode}, {m.family}, "
            f"{text.size(sum(e['bytes'] for e in m.files))}",
        }
    found |= {
        "status": "; ".join((str(entry.status), *_explain_taken(entry))),
        "aliases": " ".join(entry.aliases),
        "tags": " ".join(known.tags),
        "note": known.note,
        "notes": "" if m is None else text.drop_usual_note(m.notes),
    }
    return tuple((name, value) for name, value in found.items() if value)


def _explain_taken(entry: ModelEntry) -> list[str]:
    """Return why it is taken, with the GPU's name where it has several."""
    several = entry.manifest is not None and len(entry.manifest.gpu_names) > 1
    return [f"taken on the {gpu}: {why(match)}" if several else f"taken: {why(match)}"
            for gpu, match in entry.taken.items()]  # fmt: skip


def _list_gpu_figures(m: Manifest) -> dict[str, str]:
    """Return a fact for each GPU of a model of several."""
    return {
        f"on {r.hardware.name}": f"{text.ratio(r.metrics.get('efficiency'))} on "
        f"{r.metrics.get('problems', 0):,} problems; learned {r.timings:,} timings of "
        f"{r.problems:,} problems"
        for r in m.gpus
    }


# Two side by side


def compare(a: ModelEntry, b: ModelEntry) -> Comparison:
    """Return two models by their own metrics. Raises ModelError where one cannot be read."""
    names = [entry.model.reference for entry in (a, b)]
    if names[0] == names[1]:  # of two GPUs
        names = [f"{entry.model.slug}/{entry.model.reference}" for entry in (a, b)]
    left, right = (registry.side_by_side(entry.model) for entry in (a, b))
    judged_alike = all(left.get(name) == right.get(name) for name in ("hardware", "problems"))
    facts = {
        name: {name_metric(fact): value for fact, value in known.items()}
        for name, known in zip(names, (left, right), strict=True)
    }
    return Comparison(facts, "" if judged_alike else NOT_COMPARABLE)


# The gate


async def promote(
    access: StoreAccess, entry: ModelEntry, slug: str, *, force: str = ""
) -> GateVerdict:
    """Let the gate judge the model for this hardware on the store's timings, in a process of its
    own, and makes the model the default there if it passes. Where `force` gives a reason, the model
    is not judged again: it becomes the default against the gate's last verdict. Raises DiodeError
    where it could not be judged."""
    words = [
        "models", "promote", entry.model.reference, f"--hardware={slug}",
        f"--store={access.location}", "--json",
    ]  # fmt: skip
    if force:
        words += ["--force", f"--reason={force}"]
        judged = partial(_last_judged, entry.model, slug)
        if (run := await access.read(judged)) is not None:
            words.append(f"--verdict-of={run}")
    try:
        said = await access.command(words)
    except CommandError as error:
        said = error.out
        if not said.strip():
            raise
    try:
        verdict: GateVerdict = decode(GateVerdict, json.loads(said))
        return verdict
    except (ValueError, RecordError):
        raise DiodeError(f"The gate answered what cannot be read: {said[:200]}") from None


def _last_judged(model: ModelVersion, slug: str, store: Store) -> int | None:
    """Return the last run that judged the model for a promotion on this hardware."""
    for run in runs(store, "kind:promote state:done"):
        of = run.spec["model"], run.spec.get("hardware", model.slug)
        if of == (model.reference, slug):
            return run.id
    return None


def find_slug_to_change(entry: ModelEntry, here: Hardware | None) -> str:
    """Return the hardware whose default is changed with this model: the GPU here where the model
    has a record of it, else that of the model's folder."""
    there = here is not None and here.slug in entry.model.slugs
    return here.slug if here is not None and there else entry.model.slug


def entry_of(folder: str) -> ModelEntry:
    """Raises NoSuchModelError where it is not there any more."""
    for entry in registry.overview().entries:
        if str(entry.model.folder) == folder:
            return entry
    raise NoSuchModelError(f"The model in {folder} is gone; look again.")


# Changes, and how they are undone


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
