"""The connection to a Ray cluster, and its machines that have GPUs of one kind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diode_engine.errors import CollectionError
from diode_engine.ray_connection import RayConnection, error_line

CLOSE_SECONDS = 15.0  # for processes to end their workers


class ClusterConnection(RayConnection):
    """The connection of a collection, with what its processes on the cluster need."""

    def __init__(self, address: str) -> None:
        super().__init__(address, "Collecting", CollectionError)

    async def answer(self, reference: Any) -> Any:
        """The answer that Ray's reference stands for. Raises ProcessLost where there is none."""
        try:
            return await asyncio.wrap_future(reference.future())
        except Exception as error:
            # Where the called code has raised the error, its process is still there.
            is_there = isinstance(error, self.ray.exceptions.RayTaskError)
            raise ProcessLost(error_line(error), is_there=is_there) from error

    def close(self, actors: Sequence[Any]) -> None:
        """Lets these processes end their workers, which takes CLOSE_SECONDS at most."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            closed = [actor.close.remote() for actor in actors]
            if closed:
                self.ray.wait(closed, num_returns=len(closed), timeout=CLOSE_SECONDS)

    def end(self, actor: Any) -> None:
        """Ends a process at once."""
        with contextlib.suppress(self.ray.exceptions.RayError, ValueError):
            self.ray.kill(actor, no_restart=True)


class ProcessLost(Exception):
    """A process of the cluster cannot be used any more; the message says why. `is_there`: it runs
    still, but cannot do its work."""

    def __init__(self, why: str, *, is_there: bool = False) -> None:
        super().__init__(why)
        self.is_there = is_there


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


def machines_with(ray: Any, kind: str | None, address: str) -> list[Machine]:
    """The machines that have GPUs of this kind; with None, of the only kind there is. Raises
    CollectionError where there is no such machine, or there are several kinds and none is named."""
    alive = [Machine(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    with_gpus = [machine for machine in alive if machine.gpus]
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
