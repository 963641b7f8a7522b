"""What torch.compile has compiled so far in this process."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from diode_engine.inductor.guard import do_nothing, guard

log = logging.getLogger(__name__)


@guard("what was compiled before could not be dropped", stock=do_nothing)
def forget_compiled() -> None:
    """Make torch compile everything again, since graphs that were compiled with other choices must
    not stay. Where another thread is in one of them, they stay, and a warning says so."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return
    if _in_use_elsewhere(dynamo):
        log.warning(
            "Another thread compiles, or runs what torch.compile has compiled: functions that are "
            "compiled already keep their kernels. Call torch._dynamo.reset() when no thread does."
        )
        return
    dynamo.reset()


def _in_use_elsewhere(dynamo: Any) -> bool:
    """Return whether another thread is in a function of torch.compile. torch's reset would free
    what that thread uses, and the process would end with a segmentation fault."""
    folder = str(Path(dynamo.__file__).parent)
    return any(
        frame.f_code.co_filename.startswith(folder)
        for thread, top in sys._current_frames().items()
        if thread != threading.get_ident()
        for frame, _ in traceback.walk_stack(top)
    )
