"""Versions of models: registered, checked, annotated and removed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from diode_engine.atomic import scratch_beside
from diode_engine.core.hardware import Hardware
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError, explain_os_error
from diode_engine.models.artifact import (
    Artifact,
    load_artifact,
    load_files,
    read_files,
    write_folder,
)
from diode_engine.models.manifest import MANIFEST, Manifest, check_name, parse_manifest
from diode_engine.registry import facts
from diode_engine.registry.aliases import DEFAULT, check_registered, set_default
from diode_engine.registry.facts import Document, Event, HistoryAction, ModelFacts, ModelStatus
from diode_engine.registry.references import gpu_named, resolve_here
from diode_engine.registry.sources import ModelVersion, list_models, user_source

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
_NOTE_LENGTH = 4000


def register(folder: Path, name: str | None = None, *, default: bool = False) -> ModelVersion:
    """Copies the model in `folder` into the user's registry as the next version of `name` (its
    own name if None), and with `default` makes it the one that is taken for its hardware.

    Raises ModelError where it is not a model that can be loaded, RegistryError where the
    registry cannot be written.
    """
    manifest, contents = read_files(folder)
    model = add(manifest, contents, name)
    if default:
        set_default(model, reason="registered as the default")
    return model


def register_model(name: str | os.PathLike[str]) -> str:
    """Makes a model the one that is taken for its GPUs. `name` is the folder or file of a model,
    which is copied into the user's registry, or a model in the registry ("name", "name@version" or
    an alias); where models for several GPUs have the name, it means the one for the GPU of this
    machine. Where a GPU is in the name ("NVIDIA-H100-matmul"), the model is taken for this GPU
    alone. Returns its name@version. This process's compiles use it after the next
    `install_diode_choices()`.

    Raises ModelError where it cannot be loaded, and RegistryError where there is no such model or
    the registry cannot be written.
    """
    reference = os.fspath(name)
    model, gpu = resolve_here(reference), gpu_named(reference)
    if model.source is None:
        return register(model.folder, default=True).reference
    verify(model)
    slug = gpu.slug if gpu is not None and gpu.slug in model.slugs else None
    set_default(model, slug, reason="register_model")
    return model.reference


def check_registrable(name: str, hardware: Hardware) -> None:
    """Raises ModelError or RegistryError where `register` would refuse a model of this name. Called
    before a model is made, which takes long."""
    check_name(name)
    with facts.changing(hardware.slug) as document:
        _check_free(name, document)


def _check_free(name: str, document: Document) -> None:
    if name == DEFAULT or name in document.aliases:
        raise RegistryError(f"{name} is an alias; register the model under another name.")


def add(
    manifest: Manifest,
    contents: Mapping[str, bytes],
    name: str | None = None,
    *,
    origin: Mapping[str, Any] | None = None,
) -> ModelVersion:
    """Registers a model of these files (by name), whose hashes have been checked, as `register`
    does. `origin` says where it is from."""
    load_files(manifest, contents)
    name = check_name(name or manifest.name)
    text = json.dumps({**manifest.to_dict(), "name": name}, indent=1, ensure_ascii=False) + "\n"
    slug = manifest.hardware.slug
    source = user_source()
    parse_manifest(text.encode(), source.root)  # with its indents it may be too large
    with facts.changing(slug) as document:
        _check_free(name, document)
        version = _next(slug, name, document)
        while True:
            target = source.root / slug / name / str(version)
            try:
                write_folder(target, {MANIFEST: text.encode(), **contents})
                break
            except ModelError as error:
                if not target.exists():
                    raise RegistryError(str(error)) from None
                version += 1  # something else lies there, or one without a lock was quicker
        model = ModelVersion(name, version, target, source, slug)
        if origin is not None:
            document.models[model.reference] = ModelFacts(origin=origin)
    return model


def _next(slug: str, name: str, document: Document) -> int:
    """A number that no version of the name has or has had."""
    taken = [m.version for m in list_models() if (m.slug, m.name) == (slug, name)]
    for event in document.history:
        if event.event is HistoryAction.REMOVE and event.model is not None:
            removed, _, version = event.model.partition("@")
            if removed == name:
                taken.append(int(version))
    return max(taken, default=0) + 1


def verify(model: ModelVersion) -> Artifact:
    """The model, loaded. Raises ModelError where a file has not the size and hash in the manifest,
    or is not what its family writes."""
    return load_artifact(model.folder)


def remove(model: ModelVersion, *, aliases: bool = False, reason: str = "") -> None:
    """Takes the version out of the user's registry and deletes its files; its number is not given
    again. With `aliases`, the user's aliases that point to it are removed too.

    Raises RegistryError where it is not the user's, an alias points to it, or it cannot be
    deleted.
    """
    if not model.own:
        raise RegistryError(
            f"{model.reference} in {model.folder} is not one of your own models, which alone can "
            "be removed."
        )
    with ExitStack() as stack:
        gone = stack.enter_context(_folder_for_removed(model))
        documents = {slug: stack.enter_context(facts.changing(slug))
                     for slug in sorted(model.slugs)}  # fmt: skip
        named = [(slug, name) for slug, document in documents.items()
                 for name, reference in document.aliases.items()
                 if reference == model.reference_on(slug)]  # fmt: skip
        if named and not aliases:
            words = (n if slug == model.slug else f"{slug}/{n}" for slug, n in named)
            raise RegistryError(
                f"{model.reference} is {', '.join(words)}; make that point to another model, or "
                "remove it together with its aliases (in a command with --with-aliases)."
            )
        with _explain_not_removed(model):
            model.folder.rename(gone)  # at once, so that no half of it is ever seen
        for slug, name in named:
            del documents[slug].aliases[name]
            documents[slug].history.append(
                Event(HistoryAction.UNALIAS, None, name, model.reference_on(slug))
            )
        for slug, document in documents.items():
            document.models.pop(model.reference_on(slug), None)
        documents[model.slug].history.append(
            Event(HistoryAction.REMOVE, model.reference, reason=reason)
        )


@contextmanager
def _explain_not_removed(model: ModelVersion) -> Iterator[None]:
    with explain_os_error(RegistryError, f"{model.folder} cannot be removed"):
        try:
            yield
        except FileNotFoundError:
            raise NoSuchModelError(f"{model.reference} is gone already.") from None


@contextmanager
def _folder_for_removed(model: ModelVersion) -> Iterator[Path]:
    """Where the model's folder is moved to be deleted. What lies there when the block ends is
    deleted; where the block raises, it is moved back."""
    with ExitStack() as stack:
        with _explain_not_removed(model):
            gone = stack.enter_context(scratch_beside(model.folder)) / "model"
        try:
            yield gone
        except BaseException:
            if gone.exists():
                gone.rename(model.folder)
            raise


def facts_of(model: ModelVersion, slug: str | None = None) -> ModelFacts:
    """What may change about this model; its status and the gate's verdict are those for this
    hardware (None: that of the model's folder). Raises RegistryError where the user's registry is
    broken."""
    known = facts.read(model.slug).find(model.reference)
    if slug is None or slug == model.slug:
        return known
    there = facts.read(slug).find(model.reference_on(slug))
    return replace(known, status=there.status, gate=there.gate)


def status_of(
    model: ModelVersion, slug: str | None = None, *, known: ModelFacts | None = None
) -> ModelStatus:
    """The status for this hardware (None: that of the model's folder) that was set on this machine.
    Without one, a model that Diode ships is validated and any other a draft. `known` are its facts,
    where the caller has them."""
    known = facts_of(model, slug) if known is None else known
    return known.status or (ModelStatus.VALIDATED if model.shipped else ModelStatus.DRAFT)


def tag(model: ModelVersion, add: Iterable[str] = (), remove: Iterable[str] = ()) -> ModelFacts:
    """Adds and removes tags; returns the model's new facts. Raises RegistryError on what cannot be
    a tag."""
    add, remove = tuple(add), set(remove)
    for word in add:
        if not _TAG.fullmatch(word):
            raise RegistryError(
                f"{word!r} cannot be a tag; use letters, digits, '.', '_', ':', '/' and '-', 64 "
                "at most, a letter or digit first."
            )
    return _change(
        model, lambda known: replace(known, tags=tuple(sorted({*known.tags, *add} - remove)))
    )


def set_note(model: ModelVersion, note: str) -> ModelFacts:
    """Replaces the user's note on the model; returns the model's new facts. Raises RegistryError
    where it is too long."""
    if len(note) > _NOTE_LENGTH:
        raise RegistryError(f"A note has at most {_NOTE_LENGTH} characters, this has {len(note)}.")
    return _change(model, lambda known: replace(known, note=note))


def set_verdict(
    model: ModelVersion, status: ModelStatus, gate: Mapping[str, Any], slug: str | None = None
) -> ModelFacts:
    """Keeps what the gate found for this hardware (None: that of the model's folder); returns the
    model's new facts."""
    return _change(model, lambda known: replace(known, status=status, gate=gate), slug)


def _change(
    model: ModelVersion, change: Callable[[ModelFacts], ModelFacts], slug: str | None = None
) -> ModelFacts:
    check_registered(model)
    slug = slug or model.slug
    reference = model.reference_on(slug)
    with facts.changing(slug) as document:
        known = change(document.find(reference))
        document.models[reference] = known
    return known
