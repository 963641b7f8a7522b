"""What Home shows: the store's contents and the model in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diode_engine import paths
from diode_engine.errors import DiodeError, SeveralModelsError

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware
    from diode_engine.runs import Status
    from diode_engine.store import Store

RUNS_SHOWN = 5


@dataclass(frozen=True)
class StoreOverview:
    """The store in figures, and its last runs, the newest first."""

    size_bytes: int
    schema: str
    problems: int
    candidates: int
    timings: int
    failures: Mapping[str, int]
    environments: tuple[tuple[str, int], ...]  # (GPU and software, timings)
    last: tuple[Status, ...]


def overview(store: Store) -> StoreOverview:
    from diode_engine.runs import find
    from diode_engine.store.schema import HEAD

    stats = store.stats()
    wal = paths.beside(store.location, "-wal")  # of a file that is being written
    return StoreOverview(
        size_bytes=stats.size_bytes + (wal.stat().st_size if wal.is_file() else 0),
        schema=HEAD,  # a store of another schema is not opened
        problems=stats.problems,
        candidates=stats.candidates,
        timings=stats.timings,
        failures=dict(stats.failures),
        environments=tuple(
            (f"{e.hardware.name} · torch {e.torch} · Triton {e.triton} · driver {e.driver}", n)
            for e, n in stats.by_environment
        ),
        last=tuple(find(store, limit=RUNS_SHOWN)),
    )


def find_main_hardware(store: Store) -> Hardware | None:
    """Return the hardware with the most timings in the store; None where there are none."""
    counts: dict[Hardware, int] = {}
    for environment, timings in store.stats().by_environment:
        counts[environment.hardware] = counts.get(environment.hardware, 0) + timings
    return max(counts, key=lambda hardware: counts[hardware], default=None)


@dataclass(frozen=True)
class ModelInUse:
    """The model that is taken for a device: its reference, its main figures, and that of its GPUs
    which is the most alike to the device. `likeness` is None where there is no device here."""

    reference: str
    shipped: bool
    trained_on: str
    likeness: float | None
    efficiency: float | None
    problems: int  # that its efficiency was measured on
    data_problems: int
    data_timings: int
    created: str
    others: Mapping[str, float]  # the efficiency of other choosers on the same problems


def model_in_use(hardware: Hardware | None) -> ModelInUse | str:
    """Return the model that the registry takes for this hardware. Where no hardware is given or no
    model fits, the default of the only hardware that has one. A sentence where there is no such
    model."""
    from diode_engine import registry

    likeness = None
    match = None if hardware is None else registry.best_for(hardware)
    if match is not None:
        model, likeness = match.model, match.likeness
    else:
        try:
            model = registry.resolve("default")
        except SeveralModelsError as several:
            gpus = " and ".join(several.slugs)
            return f"None for this machine. There are models for {gpus}: M shows them."
        except DiodeError:
            return "None: train one, or register one."
    manifest = model.manifest
    record = manifest.record_for(hardware if match and hardware else manifest.hardware)
    metrics = record.metrics
    return ModelInUse(
        reference=model.reference,
        shipped=model.shipped,
        trained_on=record.hardware.name,
        likeness=likeness,
        efficiency=metrics.get("efficiency"),
        problems=int(metrics.get("problems", 0)),
        data_problems=record.problems,
        data_timings=record.timings,
        created=manifest.created,
        others=dict(metrics.get("efficiency_of_others", {})),
    )


def shipped_timings() -> tuple[Path, ...]:
    """Return the dataset files that "Import the shipped timings" imports. Larger ones (.packed.zst)
    come with Diode too, and are imported by their names. Raises DiodeError where there are none."""
    files = tuple(sorted((paths.shipped_dir() / "datasets").glob("*/*.msgpack.zst")))
    if not files:
        raise DiodeError("This Diode came without timings; install it again.")
    return files
