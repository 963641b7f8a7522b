"""Which model is taken for a device."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from diode_engine.core.hardware import Hardware
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.manifest import Manifest
from diode_engine.models.predictor import Predictor
from diode_engine.registry import facts
from diode_engine.registry.aliases import DEFAULT, pointed
from diode_engine.registry.sources import ModelSource, ModelVersion, list_models, sources

log = logging.getLogger(__name__)

# Of Hardware.likeness: an H100 SXM is 0.56 like an H200, another generation 0.
MIN_LIKENESS = 0.5
# Triton's distribution has other names in nightly and ROCm builds of torch.
_TRITON = ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm")


@dataclass(frozen=True)
class Match:
    """A model that can be taken for a device. It says how alike the device is to the one that the
    model was trained on (1: the same), whose alias "default" names the model, if one does, and how
    the torch and Triton of its timings differ from the installed ones (a text each)."""

    model: ModelVersion
    likeness: float
    default_of: ModelSource | None = None
    differences: tuple[str, ...] = ()


@dataclass
class _Known:
    """What is looked up once for all models of a hardware."""

    defaults: dict[ModelSource, ModelVersion] = field(default_factory=dict)
    document: facts.Document = field(default_factory=facts.Document)


def matches(hardware: Hardware, purpose: str = "gemm") -> list[Match]:
    """The models that can be taken for this hardware, the first choice first.

    Those of the most alike hardware come first; it must have MIN_LIKENESS. Among these the default
    comes first (the user's before that of Diode before a package's), then models of the installed
    torch and Triton, then the newest. A model that the gate refused, or that was rolled back, is
    taken only as a default. A model or an alias that cannot be read is passed over with a warning.
    """
    return rank(list_models(), hardware, purpose, log.warning)


def rank(
    models: Sequence[ModelVersion],
    hardware: Hardware,
    purpose: str,
    tell: Callable[[str], object],
) -> list[Match]:
    """`matches` among these models, as `list_models` gives them. `tell` is called with a sentence
    for each model or alias that is passed over."""
    order = sources()
    known: dict[str, _Known] = {}
    ranked = []
    for model in models:
        try:
            manifest = model.manifest
        except ModelError as error:
            tell(f"The model {model.folder} is passed over: {error}")
            continue
        likeness = hardware.likeness(manifest.hardware)
        if manifest.purpose != purpose or likeness < MIN_LIKENESS:
            continue
        if model.slug not in known:
            known[model.slug] = _look_up(model.slug, models, tell)
        here = known[model.slug]
        named_by = next((s for s in order if here.defaults.get(s) == model), None)
        if named_by is None and here.document.of(model.reference).status in facts.SET_ASIDE:
            continue
        different = differences(manifest)
        key = (
            likeness,
            0 if named_by is None else len(order) - order.index(named_by),
            not different,
            manifest.created,
            model.own,
            model.version,
        )
        ranked.append((key, Match(model, likeness, named_by, different)))
    ranked.sort(key=lambda entry: entry[0], reverse=True)
    return [match for _, match in ranked]


def _look_up(slug: str, models: Sequence[ModelVersion], tell: Callable[[str], object]) -> _Known:
    known = _Known()
    for source, found in pointed(DEFAULT, slug, models):
        if isinstance(found, RegistryError):
            tell(f"An alias is passed over: {found}")
        else:
            known.defaults[source] = found
    # A broken document also has the aliases; that it is broken has been said already.
    with contextlib.suppress(RegistryError):
        known.document = facts.read(slug)
    return known


def best_for(hardware: Hardware, purpose: str = "gemm") -> Match | None:
    """The first of `matches`; None where no model can serve this hardware."""
    return next(iter(matches(hardware, purpose)), None)


def load_predictor(hardware: Hardware, purpose: str = "gemm") -> Predictor | None:
    """The predictor of the first of `matches` that can be loaded; None where there is no match.
    What is passed over is logged, and where the model was made for other hardware or software.
    Raises ModelError where there are matches but none can be loaded."""
    refused: ModelError | None = None
    for match in matches(hardware, purpose):
        try:
            predictor = Predictor.load(match.model.folder)
        except ModelError as error:
            log.warning("The model %s is passed over: %s", match.model.folder, error)
            refused = refused or error
            continue
        _tell(match, hardware)
        return predictor
    if refused is not None:
        raise refused
    return None


def _tell(match: Match, hardware: Hardware) -> None:
    if match.likeness < 1:
        log.info(
            "There is no model for %s; %s, trained on %s, is taken (likeness %.2f).",
            hardware.name, match.model.reference, match.model.manifest.hardware.name,
            match.likeness,
        )  # fmt: skip
    if match.differences:
        log.info(
            "%s was trained on timings with other software (%s); its choices may be worse than "
            "those of a model trained with what is installed.",
            match.model.reference, ", ".join(match.differences),
        )  # fmt: skip


def differences(manifest: Manifest) -> tuple[str, ...]:
    """How the torch and Triton of the model's timings differ from the installed ones, in the first
    two parts of the version. Nothing is said of what is not installed or not in the manifest."""
    out = []
    for name, trained, installed in (
        ("torch", manifest.torch, _installed("torch")),
        ("Triton", manifest.triton, _installed(*_TRITON)),
    ):
        if installed is None or not trained:
            continue
        if _release(installed) not in {_release(version) for version in trained}:
            out.append(f"{name} {', '.join(trained)}, here {installed}")
    return tuple(out)


def _installed(*distributions: str) -> str | None:
    """The version, without importing what takes seconds to."""
    for name in distributions:
        loaded = getattr(sys.modules.get(name), "__version__", None)
        if loaded is not None:  # it may have been built from source, without metadata
            return str(loaded)
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _release(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version
