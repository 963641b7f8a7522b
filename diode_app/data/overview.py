"""What Home shows: the store's contents and the model in use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diode_engine import paths
from diode_engine.errors import DiodeError, SeveralModelsError

if TYPE_CHECKING:
    from diode_engine.core.hardware import Hardware
    from diode_engine.runs import Status
    from diode_engine.store import Store, StoreStats

RUNS_SHOWN = 5


@dataclass(frozen=True)
class StoreOverview:
    """The store in figures, and its last runs, the newest first. `size_bytes` counts what is being
    written too."""

    stats: StoreStats
    size_bytes: int
    schema: str
    last: tuple[Status, ...]


def overview(store: Store) -> StoreOverview:
    from diode_engine.runs import find
    from diode_engine.store.schema import HEAD

    stats = store.stats()
    wal = paths.beside(store.location, "-wal")  # of a file that is being written
    size = stats.size_bytes + (wal.stat().st_size if wal.is_file() else 0)
    # A store of another schema is not opened.
    return StoreOverview(stats, size, HEAD, tuple(find(store, limit=RUNS_SHOWN)))


def find_main_hardware(store: Store) -> Hardware | None:
    """Return the hardware with the most timings in the store; None where there are none."""
    counts: dict[Hardware, int] = {}
    for environment, timings in store.stats().by_environment:
        counts[environment.hardware] = counts.get(environment.hardware, 0) + timings
    return max(counts, key=lambda hardware: counts[hardware], default=None)


def model_in_use(hardware: Hardware | None) -> tuple[tuple[str, str], ...] | str:
    """Return the facts of the model that the registry takes for this hardware. Where no hardware is
    given or no model fits, of the default of the only hardware that has one. A sentence where there
    is no such model."""
    from diode_app.data.models import entry_of, facts
    from diode_engine import registry

    match = None if hardware is None else registry.best_for(hardware)
    if match is not None:
        model, here = match.model, ""
        if match.likeness < 1:
            here = f"{match.likeness:.2f} like the GPU that it is made for"
    else:
        here = "no GPU that it serves"
        try:
            model = registry.resolve("default")
        except SeveralModelsError as several:
            gpus = " and ".join(several.slugs)
            return f"None for this machine. There are models for {gpus}: M shows them."
        except DiodeError:
            return "None: train one, or register one."
    whose = "shipped" if model.shipped else "yours"
    gpu = model.manifest.record_for(hardware if match and hardware else model.manifest.hardware)
    known = dict(facts(entry_of(str(model.folder))))
    of_gpu = known.get(f"on {gpu.hardware.name}", "")
    of_best, _, others = (of_gpu or known.get("of the best", "")).partition("; ")
    found = (
        ("model", f"{model.reference} ({whose})"),
        ("made for", gpu.hardware.name),
        ("here", here),
        ("of the best", of_best),
        ("beside", "" if of_gpu else ", ".join(others.split(", ")[:2])),
        ("trained on", known["trained on"]),
    )
    return tuple((name, value) for name, value in found if value)


def shipped_timings() -> tuple[Path, ...]:
    """Return the dataset files that "Import the shipped timings" imports. Larger ones (.packed.zst)
    come with Diode too, and are imported by their names. Raises DiodeError where there are none."""
    files = tuple(sorted((paths.shipped_dir() / "datasets").glob("*/*.msgpack.zst")))
    if not files:
        raise DiodeError("This Diode came without timings; install it again.")
    return files
