"""The machines of a Ray cluster that have GPUs of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diode_engine.errors import CollectionError

_KIND = "accelerator_type:"  # Ray's resource for a kind of GPU begins with this


@dataclass(frozen=True)
class Machine:
    """A machine that is alive: its amounts of Ray's resources, by their names."""

    resources: Mapping[str, float]

    @property
    def gpus(self) -> int:
        return int(self.resources.get("GPU", 0))

    @property
    def cores(self) -> int:
        return int(self.resources.get("CPU", 0))

    @property
    def kinds(self) -> list[str]:
        """The kinds of its accelerators, as Ray names them."""
        names = self.resources
        return [name.removeprefix(_KIND) for name in names if name.startswith(_KIND)]

    def resource(self, kind: str | None) -> str | None:
        """The name of the machine's resource for this kind; None where it has none."""
        names = (f"{_KIND}{kind}", kind)
        return next((n for n in names if n is not None and n in self.resources), None)


def machines(ray: Any) -> list[Machine]:
    """All machines that are alive."""
    return [Machine(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def machines_with(ray: Any, kind: str | None, address: str) -> list[Machine]:
    """The machines that have GPUs of this kind; with None, of the only kind there is. Raises
    CollectionError where there is no such machine, or there are several kinds and none is named."""
    with_gpus = [machine for machine in machines(ray) if machine.gpus]
    kinds = sorted({kind for machine in with_gpus for kind in machine.kinds})
    if kind is None and len(kinds) > 1:
        raise CollectionError(
            f"The cluster has GPUs of several kinds ({', '.join(kinds)}): say with "
            "--accelerator which are to be used."
        )
    found = with_gpus
    if kind is not None:
        found = [machine for machine in with_gpus if machine.resource(kind) is not None]
    if not found:
        has = f"its GPUs are {', '.join(kinds) or 'of no named kind'}" if with_gpus else "none"
        wanted = "GPU" if kind is None else f"GPU of the kind {kind}"
        raise CollectionError(f"The Ray cluster at {address} has no {wanted}: {has}.")
    return found
