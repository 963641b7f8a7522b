"""Where a model came from: the run that made it, the timings, their runs, the GPU and software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from diode_app import text
from diode_app.data.models import entry_of, facts
from diode_app.data.tables import Row
from diode_engine import registry
from diode_engine.core.checks import decode
from diode_engine.errors import NoSuchRunError, RecordError
from diode_engine.models.manifest import Manifest
from diode_engine.registry import ModelEntry
from diode_engine.runs import find
from diode_engine.store import Store
from diode_engine.validation.gate import GateVerdict

# The beginning of a lineage row's key says what it leads to: a run, a model, problems of the store.
RUN, MODEL, DATA, NOWHERE = "run", "model", "data", "none"


@dataclass(frozen=True)
class ModelView:
    """All of a model's page. A key of `lineage` is `number:what:where`, with a run's number, a
    model's folder or a filter query; `history` has the newest change first."""

    entry: ModelEntry
    facts: tuple[tuple[str, str], ...]
    card: str
    lineage: tuple[Row, ...]
    gates: Mapping[str, GateVerdict | None]  # the last verdicts, by the slugs of its GPUs
    history: tuple[tuple[str, str], ...]


def model_view(store: Store | None, folder: str) -> ModelView:
    """Return the model in this folder; `store` is where its runs and timings may be, if there is
    one to read. Raises NoSuchModelError where the model is gone, RegistryError where the registry
    is broken."""
    entry = entry_of(folder)
    model = entry.model
    found = {slug: registry.facts_of(model, slug).gate for slug in model.slugs}
    changes = [(event, slug) for slug in model.slugs for event in registry.history(slug)
               if model.reference_on(slug) in (event.model, event.before)]  # fmt: skip
    changes.sort(key=lambda change: change[0].at)
    steps = () if entry.manifest is None else _steps(store, entry, entry.manifest)
    return ModelView(
        entry=entry,
        facts=facts(entry),
        card="" if entry.manifest is None else registry.card(entry.model, entry.facts),
        # With a number: several may lead to the same place.
        lineage=tuple(replace(step, key=f"{i}:{step.key}") for i, step in enumerate(steps)),
        gates={slug: _verdict(gate) for slug, gate in found.items() if gate is not None},
        history=tuple(
            (
                text.minute(event.at),
                event.describe() + (f" on {slug}" if len(model.slugs) > 1 else ""),
            )
            for event, slug in reversed(changes)
        ),
    )


def _verdict(given: Mapping[str, Any]) -> GateVerdict | None:
    try:
        verdict: GateVerdict = decode(GateVerdict, given)
    except RecordError:
        return None
    return verdict


def _steps(store: Store | None, entry: ModelEntry, m: Manifest) -> Iterator[Row]:
    yield _row(NOWHERE, "identity", "model", f"{entry.model.reference}, identity {m.identity}")
    origin = entry.facts.origin
    if origin is not None:
        yield _row(NOWHERE, "origin", "imported from", str(origin.get("archive", "")))
    made = _trained(store, entry)
    if made is not None:
        yield _row(RUN, str(made[0]), "made by", made[1])
    if m.data.base:
        yield _base(m.data.base)
    yield _row(
        DATA, _query(m), "learned from",
        f"{m.data.timings:,} timings of {m.data.problems:,} problems",
    )  # fmt: skip
    for name in m.data.runs:
        yield _source(store, name)
    for name in m.data.files:
        yield _row(NOWHERE, f"file {name}", "file", name)
    for key in m.data.datasets:
        yield _row(NOWHERE, f"dataset {key}", "content hash of data", key)
    for h in (record.hardware for record in m.records):
        yield _row(
            DATA, f'gpu:"{h.name}"', "GPU",
            f"{h.name} ({h.backend} {h.arch}, {h.multiprocessors} multiprocessors, "
            f"{h.clock_mhz} MHz)",
        )  # fmt: skip
    for name, versions in (("torch", m.torch), ("triton", m.triton)):
        for version in versions:
            yield _row(DATA, f'{_gpu_query(m)} {name}:"{version}"', name, version)


def _row(leads: str, where: str, step: str, what: str) -> Row:
    """Return a row; one that leads nowhere has no arrow."""
    mark = "" if leads == NOWHERE else "→"
    cells = {"step": step, "what": what, "leads": mark}
    return Row(f"{leads}:{where}", cells, {"step": step, "what": what})


def _query(m: Manifest) -> str:
    terms = [_gpu_query(m)]
    for name, versions in (("torch", m.torch), ("triton", m.triton)):
        if len(versions) == 1:
            terms.append(f'{name}:"{versions[0]}"')
    return " ".join(terms)


def _gpu_query(m: Manifest) -> str:
    """Return the filter query of the timings of its GPUs."""
    return "gpu:" + ",".join(f'"{name}"' for name in m.gpu_names)


def _trained(store: Store | None, entry: ModelEntry) -> tuple[int, str] | None:
    """Return the run of this store that registered the model, and the text for it."""
    if store is None:
        return None
    reference, identity = entry.model.reference, entry.manifest and entry.manifest.identity
    for status in find(store, f'kind:train message:"registered as {reference}"'):
        result = store.result(status.run.id) or {}
        if result.get("identity", identity) == identity and result.get("model") == reference:
            return status.run.id, f"run {status.run.id}, {text.moment(status.run.started)}"
    return None


def _base(identity: str) -> Row:
    for entry in registry.overview().entries:
        if entry.manifest is not None and entry.manifest.identity == identity:
            return _row(MODEL, str(entry.model.folder), "tuned from", entry.model.reference)
    return _row(NOWHERE, "base", "tuned from", f"a model that is not here, identity {identity}")


def _source(store: Store | None, name: str) -> Row:
    """Return a run that timings came from, such as "collect 7". It is of the store that the model
    was trained from, which may be another store than this one."""
    kind, _, number = name.rpartition(" ")
    if store is not None and number.isdecimal():
        try:
            run = store.run(int(number))
        except NoSuchRunError:
            run = None
        if run is not None and run.kind == kind:
            file = run.spec.get("file")
            what = f"run {run.id}, {kind}, {text.moment(run.started)}"
            return _row(RUN, number, "timings of", f"{what}, {file}" if file else what)
    return _row(NOWHERE, f"run {name}", "timings of", f"{name}, of another store")
