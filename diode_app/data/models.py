"""The registered models: which there are, which one is taken and why, and all that is known of
one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from diode_app import text
from diode_app.data.commands import CommandError
from diode_app.data.pages import Row
from diode_engine.core.hardware import Hardware
from diode_engine.errors import DiodeError, NoSuchModelError

if TYPE_CHECKING:  # numpy comes with it: imported in a thread
    from diode_app.data.store_access import StoreAccess
    from diode_engine.models.manifest import Manifest
    from diode_engine.registry import Match, ModelEntry, ModelVersion
    from diode_engine.store import Store


@dataclass(frozen=True)
class Models:
    """All models, by their folders, as they are and as rows of a table; `taken` is a sentence on
    the one that is taken here, `problems` are sentences on what is broken."""

    entries: Mapping[str, ModelEntry]
    rows: tuple[Row, ...]
    taken: str
    problems: tuple[str, ...]


def models(here: Hardware | None, gpus: int) -> Models:
    """The models as they are now. `here` is this machine's hardware, None while it is not known;
    `gpus` is how many it has."""
    from diode_engine import registry

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
    from diode_engine import registry

    if here is None:
        return "Looking at this machine's hardware ..."
    if not gpus:
        return "There is no GPU here, so none is in use; ● marks the one that each GPU would take."
    match = registry.best_for(here)
    if match is None:
        return f"No model serves the {here.name} here: train one, or import one."
    of = match.model.manifest.record_for(here).hardware.name
    alike = f"; the {of} that it is made for is {match.likeness:.2f} alike"
    borrowed = "" if of == here.name else alike
    return f"On the {here.name} here {match.model.reference} is taken: {why(match)}{borrowed}."


def why(match: Match) -> str:
    """Why a model is taken, as a clause."""
    if match.default_of is None:
        parts = ["no default is set, and it is the newest that fits"]
    else:
        whose = {"user": "you made it the default", "shipped": "it is the default that Diode ships"}
        other = f"it is the default that the package {match.default_of.label} brings"
        parts = [whose.get(match.default_of.kind, other)]
    if match.differences:
        parts.append(f"but it was made with {', '.join(match.differences)}")
    return "; ".join(parts)


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
        "aliases": " ".join(entry.aliases),
        "taken": f"● {taken}" if taken else "",
        "efficiency": text.ratio(record["efficiency"]),
        "efficiency_p10": text.ratio(record["efficiency_p10"]),
        "family": "" if m is None else m.family,
        "problems": "" if m is None else f"{m.data.problems:,}",
        "timings": "" if m is None else f"{m.data.timings:,}",
        "created": "" if m is None else text.minute(m.created)[:10],
        "from": str(record["from"] or ""),
        "tags": " ".join(entry.facts.tags),
        "note": entry.facts.note.replace("\n", " "),
    }
    return Row(folder, shown, record)


def facts(entry: ModelEntry) -> tuple[tuple[str, str], ...]:
    """The facts that a person wants to know of a model first."""
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
        "says": "" if m is None else m.notes,
    }
    return tuple((name, value) for name, value in found.items() if value)


def _explain_taken(entry: ModelEntry) -> list[str]:
    """Why it is taken, with the GPU's name where it has several."""
    several = entry.manifest is not None and len(entry.manifest.gpu_names) > 1
    return [f"taken on the {gpu}: {why(match)}" if several else f"taken: {why(match)}"
            for gpu, match in entry.taken.items()]  # fmt: skip


def _list_gpu_figures(m: Manifest) -> dict[str, str]:
    """A fact for each GPU of a model of several."""
    return {
        f"on {r.hardware.name}": f"{text.ratio(r.metrics.get('efficiency'))} on "
        f"{r.metrics.get('problems', 0):,} problems; learned {r.timings:,} timings of "
        f"{r.problems:,} problems"
        for r in m.gpus
    }


# Two side by side


@dataclass(frozen=True)
class Comparison:
    """Two models by their own metrics; `warning` says where these cannot be compared."""

    names: tuple[str, str]
    rows: tuple[Row, ...]
    warning: str | None


def compare(a: ModelEntry, b: ModelEntry) -> Comparison:
    """Raises ModelError where one cannot be read."""
    from diode_engine import registry

    left, right = (registry.side_by_side(entry.model) for entry in (a, b))
    rows = []
    for name in dict.fromkeys((*left, *right)):
        values = left.get(name), right.get(name)
        apart = _difference(*values)
        record = {"metric": name, "a": values[0], "b": values[1], "difference": apart}
        shown = {
            "metric": name.replace("_", " ").replace("efficiency of others", "efficiency,"),
            **dict(zip(("a", "b"), map(_value, values), strict=True)),
            "difference": "" if not apart else _signed(apart),
        }
        rows.append(Row(name, shown, record))
    judged = left.get("problems"), right.get("problems")
    return Comparison(
        (a.model.reference, b.model.reference),
        tuple(rows),
        None
        if judged[0] == judged[1] and left["hardware"] == right["hardware"]
        else "They were judged on different problems, so their metrics cannot be compared. Judge "
        "both on yours in Validate.",
    )


def _difference(a: object, b: object) -> float | None:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return b - a if numbers else None  # type: ignore[operator]


def _signed(value: float) -> str:
    return (f"{value:+,}" if isinstance(value, int) else f"{value:+.3g}").replace("-", "−")


def _value(value: object) -> str:
    if value is None:
        return text.NONE
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# The gate


@dataclass(frozen=True)
class Verdict:
    """The gate's verdict on a model; checks are (name, passed, sentence)."""

    model: str
    against: str
    checks: tuple[tuple[str, bool, str], ...]
    promoted: bool

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Verdict:
        """From what the gate has written (validation.gate.GateVerdict.to_dict)."""
        return cls(
            str(given["model"]),
            str(given["against"]),
            tuple((c["name"], bool(c["passed"]), c["found"]) for c in given["checks"]),
            bool(given.get("promoted", given.get("passed"))),
        )


async def promote(access: StoreAccess, entry: ModelEntry, slug: str, *, force: str = "") -> Verdict:
    """Lets the gate judge the model for this hardware on the store's timings, in a process of its
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
        return Verdict.of(json.loads(said))
    except (ValueError, KeyError, TypeError):
        raise DiodeError(f"The gate answered what cannot be read: {said[:200]}") from None


def _last_judged(model: ModelVersion, slug: str, store: Store) -> int | None:
    """The last run that judged the model for a promotion on this hardware."""
    from diode_engine.store.run_query import runs

    for run in runs(store, "kind:promote state:done"):
        of = run.spec["model"], run.spec.get("hardware", model.slug)
        if of == (model.reference, slug):
            return run.id
    return None


def find_slug_to_change(entry: ModelEntry, here: Hardware | None) -> str:
    """The hardware whose default is changed with this model: the GPU here where the model has a
    record of it, else that of the model's folder."""
    there = here is not None and here.slug in entry.model.slugs
    return here.slug if here is not None and there else entry.model.slug


def named(entry: ModelEntry) -> Sequence[str]:
    """The words that name a model to a headless command."""
    return (entry.model.reference, f"--hardware={entry.model.slug}")


def entry_of(folder: str) -> ModelEntry:
    """Raises NoSuchModelError where it is not there any more."""
    from diode_engine import registry

    for entry in registry.overview().entries:
        if str(entry.model.folder) == folder:
            return entry
    raise NoSuchModelError(f"The model in {folder} is gone; look again.")
