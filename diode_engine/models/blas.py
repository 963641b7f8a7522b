"""BLAS on one thread.

A problem is ranked in less than a millisecond, while Inductor's compilers keep the cores busy.
Waiting for BLAS's other threads would then take tens of milliseconds. The same holds where a
training asks a model about thousands of problems, one at a time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np  # noqa: F401  # whose BLAS must be loaded before it is looked for
from threadpoolctl import ThreadpoolController

# The number of BLAS threads is one for the whole process: if two threads changed it at the same
# time, one of them would restore the other's number.
_LOCK = threading.Lock()


@cache
def _libraries() -> list[Any]:
    libraries: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return libraries


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """While the block runs, BLAS calls of the whole process use one thread. Costs about 2 µs."""
    with _LOCK:
        # Not by the controller's `limit`, which takes ten times as long.
        before = [(library, library.get_num_threads()) for library in _libraries()]
        for library, threads in before:
            if threads != 1:
                library.set_num_threads(1)
        try:
            yield
        finally:
            for library, threads in before:
                if threads != 1:
                    library.set_num_threads(threads)
