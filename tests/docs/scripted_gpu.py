"""diode-engine on a machine that seems to have an H200: collections are answered by
tests/collect/scripted_worker.py, which makes times up by a rule. All else is what it is."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from diode_engine.cli import main
from diode_engine.collect import local
from diode_engine.collect.gpu_state import GpuWatch

WORKER = Path(__file__).parents[1] / "collect" / "scripted_worker.py"


if __name__ == "__main__":
    os.environ["DIODE_SCRIPT"] = '{"offered": null, "fates": {}, "time_us": null}'
    local.devices = lambda _given=(): (0,)
    local.LocalExecutor = functools.partial(  # type: ignore[misc]
        local.LocalExecutor, workers_per_gpu=2, watch=lambda: GpuWatch(None)
    )
    local.Setup = functools.partial(local.Setup, (sys.executable, str(WORKER)))  # type: ignore[misc]
    sys.exit(main())
