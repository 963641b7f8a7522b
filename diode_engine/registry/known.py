"""What Diode knows about each GPU: whether the model that is taken for it learned from its own
timings or from another GPU's, or whether there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from diode_engine.core.hardware import KNOWN, Hardware
from diode_engine.errors import ModelError
from diode_engine.registry.choice import Match, rank
from diode_engine.registry.sources import list_models


class Basis(StrEnum):
    """What the choices on a GPU are based on."""

    DATA = "data"  # timings of this GPU
    TRANSFER = "transfer"  # timings of a similar GPU
    NOTHING = "nothing"


@dataclass(frozen=True)
class Transferred:
    """What a model reached on a GPU that it has seen no timings of."""

    efficiency: float  # of its first choices, the geometric mean
    default: float  # the same for max-autotune's DEFAULT
    problems: int  # that both were measured on

    def __str__(self) -> str:
        return (
            f"measured: {self.efficiency:.3f}, {self.default - self.efficiency:.3f} less than "
            f"max-autotune's DEFAULT, on {self.problems} problems"
        )


_GEMM_6 = "48d1a766e7d46b6be70c4994275ce92c"  # the identity of gemm@6 of the H200
# By the identity of the model and the slug of the GPU. Only this pair was measured: gemm@6 on
# problems that were new to it, on an H100 80GB HBM3.
MEASURED: Mapping[tuple[str, str], Transferred] = {
    (_GEMM_6, "nvidia-h100-80gb-hbm3"): Transferred(0.957, 0.978, 213),
}


@dataclass(frozen=True)
class KnownFor:
    """What Diode knows about one GPU. `match` is the model that is taken for it, None where there
    is none. `measured` is what that model reached on this GPU; None where this was not measured, or
    the model has learned from this GPU's own timings."""

    hardware: Hardware
    basis: Basis
    match: Match | None
    measured: Transferred | None

    def __str__(self) -> str:
        if self.match is None:
            return "no model"
        manifest = self.match.model.manifest
        if self.basis is Basis.DATA:
            found = manifest.metrics.get("efficiency")
            reached = f", {found:.3f} on held-out problems" if isinstance(found, float) else ""
            return f"from {manifest.data.timings:,} timings of this GPU{reached}"
        how = f"by transfer from {manifest.hardware.name} (likeness {self.match.likeness:.2f})"
        return f"{how}; {self.measured or 'not measured'}"


def known_for(hardware: Hardware) -> KnownFor:
    """What the choice of a model for this GPU is based on."""
    # Models that cannot be read are reported where models are listed or taken.
    match = next(iter(rank(list_models(), hardware, "gemm", lambda sentence: None)), None)
    if match is None:
        return KnownFor(hardware, Basis.NOTHING, None, None)
    manifest = match.model.manifest
    if manifest.hardware.slug == hardware.slug:
        return KnownFor(hardware, Basis.DATA, match, None)
    measured = MEASURED.get((manifest.identity, hardware.slug))
    return KnownFor(hardware, Basis.TRANSFER, match, measured)


def known_for_all() -> list[KnownFor]:
    """The same for all GPUs that Diode knows by name and those that there are models of, by
    name."""
    found = {hardware.slug: hardware for hardware in KNOWN.values()}
    for model in list_models():
        try:
            hardware = model.manifest.hardware
        except ModelError:  # a listing of the models tells it
            continue
        found[hardware.slug] = hardware
    return [known_for(hardware) for _, hardware in sorted(found.items())]
