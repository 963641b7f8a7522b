"""Which model is taken for a device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from diode_engine.core.hardware import KNOWN, Hardware
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.manifest import Manifest
from diode_engine.models.predictor import Predictor
from diode_engine.registry import facts
from diode_engine.registry.aliases import DEFAULT, alias_targets
from diode_engine.registry.sources import (
    ModelSource,
    ModelVersion,
    gpus_of_models,
    list_models,
    sources,
)
from diode_engine.version import torch_version, triton_version, without_patch

log = logging.getLogger(__name__)

# The least Hardware.likeness of a model's GPU to the device. An H100 SXM has 0.56 to an H200, a GPU
# of another generation 0.
MIN_LIKENESS = 0.5

_Known = tuple[dict[ModelSource, ModelVersion], facts.Document]  # of one hardware (see `_look_up`)


@dataclass(frozen=True)
class Match:
    """A model that can be taken for a device."""

    model: ModelVersion
    hardware: Hardware  # the most alike of the model's GPUs
    likeness: float  # of the device to it; 1: the same
    default_of: ModelSource | None = None  # the source whose alias "default" names the model
    # How the torch and Triton of its timings differ from the installed ones, a text for each.
    differences: tuple[str, ...] = ()

    def describe_basis(self, device: Hardware) -> str:
        """What the choices on this device, for which the model is taken, are based on."""
        if self.hardware.slug != device.slug:
            likeness = f"likeness {self.likeness:.2f}"
            return f"by transfer from {self.hardware.name} ({likeness}); not measured"
        record = self.model.manifest.record_for(device)
        found = record.metrics.get("efficiency")
        reached = f", {found:.3f} on held-out problems" if isinstance(found, float) else ""
        if record.timings:
            return f"from {record.timings:,} timings of this GPU{reached}"
        return f"from other GPUs' timings{reached} of this GPU"


def matches(hardware: Hardware, purpose: str = "gemm") -> list[Match]:
    """The models that can be taken for this hardware, the first choice first.

    Those with a record of this hardware come first, then those of the most alike hardware, which
    must have MIN_LIKENESS. Among these the default of the hardware that the record is of comes
    first (the user's before that of Diode before a package's), then models of the installed torch
    and Triton, then the newest. A model that the gate refused, or that was rolled back, is taken
    only as a default. A model or an alias that cannot be read is skipped with a warning.
    """
    return rank(list_models(), hardware, purpose, log.warning)


def rank(
    models: Sequence[ModelVersion],
    hardware: Hardware,
    purpose: str,
    tell: Callable[[str], object],
) -> list[Match]:
    """`matches` among these models, as `list_models` gives them. `tell` is called with a sentence
    for each model or alias that is skipped."""
    order = sources()
    known: dict[str, _Known] = {}  # by the slug of the hardware
    ranked = []
    for model in models:
        try:
            manifest = model.manifest
        except ModelError as error:
            tell(f"The model {model.folder} is skipped: {error}")
            continue
        of = manifest.record_for(hardware).hardware
        likeness = hardware.likeness(of)
        if manifest.purpose != purpose or likeness < MIN_LIKENESS:
            continue
        if of.slug not in known:
            known[of.slug] = _look_up(of.slug, models, tell)
        defaults, document = known[of.slug]
        named_by = next((s for s in order if defaults.get(s) == model), None)
        status = document.find(model.reference_on(of.slug)).status
        if named_by is None and status in facts.SET_ASIDE:
            continue
        different = differences(manifest)
        key = (
            1.0 if of.slug == hardware.slug else likeness,  # whatever its clock
            0 if named_by is None else len(order) - order.index(named_by),
            likeness,
            not different,
            manifest.created,
            model.own,
            model.version,
        )
        ranked.append((key, Match(model, of, likeness, named_by, different)))
    ranked.sort(key=lambda entry: entry[0], reverse=True)
    return [match for _, match in ranked]


def _look_up(slug: str, models: Sequence[ModelVersion], tell: Callable[[str], object]) -> _Known:
    """The default of each source for this hardware, and what the user's registry says of it."""
    defaults = {}
    for source, found in alias_targets(DEFAULT, slug, models):
        if isinstance(found, RegistryError):
            tell(f"An alias is skipped: {found}")
        else:
            defaults[source] = found
    try:
        return defaults, facts.read(slug)
    except RegistryError:  # told already, with the user's aliases, which are in the same document
        return defaults, facts.Document()


def best_for(hardware: Hardware, purpose: str = "gemm") -> Match | None:
    """The first of `matches`; None where no model can serve this hardware."""
    return next(iter(matches(hardware, purpose)), None)


def load_predictor(hardware: Hardware, purpose: str = "gemm") -> Predictor | None:
    """The predictor of the first of `matches` that can be loaded, with the facts of this hardware
    or of the most alike of the model's GPUs; None where there is no match. Log
    messages name the models that are skipped, and say whether the model was made for other
    hardware or software. Raises ModelError where there are matches but none can be loaded."""
    refused: ModelError | None = None
    for match in matches(hardware, purpose):
        try:
            predictor = Predictor.load(match.model.folder, hardware)
        except ModelError as error:
            log.warning("The model %s is skipped: %s", match.model.folder, error)
            refused = refused or error
            continue
        _log_basis(match, hardware)
        return predictor
    if refused is not None:
        raise refused
    return None


def _log_basis(match: Match, hardware: Hardware) -> None:
    if match.hardware.slug != hardware.slug:
        log.info(
            "There is no model for %s; %s, trained on %s, is taken (likeness %.2f).",
            hardware.name, match.model.reference, match.hardware.name, match.likeness,
        )  # fmt: skip
    if match.differences:
        log.info(
            "%s was trained on timings with other software (%s); its choices may be worse than "
            "those of a model trained with what is installed.",
            match.model.reference, ", ".join(match.differences),
        )  # fmt: skip


def differences(manifest: Manifest) -> tuple[str, ...]:
    """How the torch and Triton of the model's timings differ from the installed ones, in the first
    two parts of the version: a text for each that differs. What is not installed or not in the
    manifest does not count as different."""
    out = []
    for name, trained, installed in (
        ("torch", manifest.torch, torch_version()),
        ("Triton", manifest.triton, triton_version()),
    ):
        if installed is None or not trained:
            continue
        if without_patch(installed) not in map(without_patch, trained):
            out.append(f"{name} {', '.join(trained)}, here {installed}")
    return tuple(out)


def taken_for_all() -> list[tuple[Hardware, Match | None]]:
    """The model that is taken for each GPU that Diode knows by name or has a model of, by slug."""
    # A listing of the models tells which of them cannot be read.
    models = list_models()
    found = {gpu.slug: gpu for gpu in (*KNOWN.values(), *gpus_of_models().values())}
    return [
        (gpu, next(iter(rank(models, gpu, "gemm", lambda sentence: None)), None))
        for _, gpu in sorted(found.items())
    ]
