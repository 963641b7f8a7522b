"""A Ray cluster of several machines, all of them here, with GPUs that are none."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

KIND = "H200"


class FakeCluster:
    """A head without GPUs, and `machines` with one each."""

    def __init__(self, machines: int, *, cores: int = 2) -> None:
        from ray.cluster_utils import Cluster

        logging.getLogger("ray").setLevel(logging.CRITICAL)
        small = {"object_store_memory": 80 << 20, "include_dashboard": False}
        self._cluster: Any = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0, **small}
        )
        self._cores = cores
        self.machines = [self.add() for _ in range(machines)]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    @property
    def logs(self) -> Path:
        return Path(self._cluster.head_node.get_logs_dir_path())

    def add(self, kind: str = KIND) -> Any:
        return self._cluster.add_node(
            num_cpus=self._cores,
            num_gpus=1,
            resources={f"accelerator_type:{kind}": 1},
            object_store_memory=80 << 20,
        )

    def add_cores(self, cores: int) -> Any:
        """A machine without a GPU."""
        return self._cluster.add_node(num_cpus=cores, num_gpus=0, object_store_memory=80 << 20)

    def remove(self, machine: Any) -> None:
        """As if its power had failed."""
        self._cluster.remove_node(machine, allow_graceful=False)

    def machine_of(self, pid: int) -> Any:
        """The machine that this process is on: its raylet has started it."""
        above = []
        while pid > 1:
            above.append(pid)
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        return next(m for m in self.machines if m.all_processes["raylet"][0].process.pid in above)

    def close(self) -> None:
        import ray

        ray.shutdown()
        with contextlib.suppress(Exception):
            self._cluster.shutdown()
