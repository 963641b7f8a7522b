"""What Diode knows about each GPU: whether the model that is taken for it has a record of it or
comes from another GPU, or whether there is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from diode_engine.core.hardware import KNOWN, Hardware
from diode_engine.errors import ModelError
from diode_engine.registry.choice import Match, rank
from diode_engine.registry.sources import list_models


class Basis(StrEnum):
    """What the choices on a GPU are based on."""

    DATA = "data"  # timings of this GPU: the model learned from them, or was judged on them
    TRANSFER = "transfer"  # timings of a similar GPU
    NOTHING = "nothing"


@dataclass(frozen=True)
class KnownFor:
    """What Diode knows about one GPU. `match` is the model that is taken for it, None where there
    is none."""

    hardware: Hardware
    basis: Basis
    match: Match | None

    def __str__(self) -> str:
        if self.match is None:
            return "no model"
        record = self.match.model.manifest.record_for(self.hardware)
        if self.basis is Basis.TRANSFER:
            return (
                f"by transfer from {record.hardware.name} (likeness {self.match.likeness:.2f}); "
                "not measured"
            )
        found = record.metrics.get("efficiency")
        reached = f", {found:.3f} on held-out problems" if isinstance(found, float) else ""
        if record.timings:
            return f"from {record.timings:,} timings of this GPU{reached}"
        return f"from other GPUs' timings{reached} of this GPU"


def known_for(hardware: Hardware) -> KnownFor:
    """What the choice of a model for this GPU is based on."""
    # Models that cannot be read are reported where models are listed or taken.
    match = next(iter(rank(list_models(), hardware, "gemm", lambda sentence: None)), None)
    if match is None:
        return KnownFor(hardware, Basis.NOTHING, None)
    own = match.model.manifest.record_for(hardware).hardware.slug == hardware.slug
    return KnownFor(hardware, Basis.DATA if own else Basis.TRANSFER, match)


def known_for_all() -> list[KnownFor]:
    """The same for all GPUs that Diode knows by name and those that there are models of, by
    name."""
    found = {hardware.slug: hardware for hardware in KNOWN.values()}
    for model in list_models():
        try:
            records = model.manifest.records
        except ModelError:  # a listing of the models tells it
            continue
        found.update({record.hardware.slug: record.hardware for record in records})
    return [known_for(hardware) for _, hardware in sorted(found.items())]
