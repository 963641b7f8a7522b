"""The ways in which the zoo compiles a model, and the processes that do it.

A model has a process of its own, so that a crash or a hang ends no other. The process writes JSON
objects, one a line, to its standard output; all other output goes to standard error.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from measuring import MAX_AUTOTUNE, Way, diode, stock

Row = dict[str, Any]

# The same in all ways: Inductor chooses these itself, by timings that it takes anew in each
# compile, and they differ by more than what is measured here.
_SAME: dict[str, Any] = {"triton.autotune_pointwise": False, "max_autotune_conv_backends": "ATEN"}
_TUNED = {**MAX_AUTOTUNE, **_SAME}

WAYS = {
    "plain": Way(_SAME, stock),
    "import": Way(_TUNED, diode(top_k_configs=1)),  # as `import diode_engine` installs it
    "fast": Way({"fast_autotune": True, **_SAME}, diode(top_k_configs=1)),
    "install": Way(_TUNED, diode()),
    "threshold": Way({**_TUNED, "diode_confidence_threshold": 0.9}, diode(top_k_configs=1)),
    # it tunes pointwise kernels as well, which takes as long whoever chooses the GEMMs
    "mode": Way(
        torch._inductor.list_mode_options("max-autotune-no-cudagraphs"), diode(top_k_configs=1)
    ),
    "DEFAULT": Way(_TUNED, stock),
    "again": Way(_SAME, stock),  # plain compiled twice: always measured with the others
}
DIODE = ("import", "fast", "install", "threshold", "mode")


def rows_out() -> Callable[[Row], None]:
    """A function that writes a row to standard output. All other output goes to standard error from
    now on."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def write(row: Row) -> None:
        out.write(json.dumps(row) + "\n")
        out.flush()

    return write


def each_in_a_process(
    tasks: Iterable[tuple[str, Sequence[str]]],
    slots: Sequence[Mapping[str, str]],
    take: Callable[[str, Row], None],
    *,
    limit_s: float,
    until: float,
) -> None:
    """Runs the commands of tasks, (name, command), in as many processes at a time as there are
    slots; a slot is environment variables. `take` is called with each row and its task's name, one
    at a time; the row has "error" where a process failed or took over `limit_s`. No process is
    begun after `until`, by time.monotonic."""
    left: queue.SimpleQueue[tuple[str, Sequence[str]]] = queue.SimpleQueue()
    for task in tasks:
        left.put(task)
    turn = threading.Lock()
    running: set[subprocess.Popen[str]] = set()
    ended = threading.Event()

    def give(name: str, row: Row) -> None:
        with turn:
            take(name, row)

    def work(slot: Mapping[str, str]) -> None:
        while time.monotonic() < until and not ended.is_set():
            try:
                name, command = left.get_nowait()
            except queue.Empty:
                return
            failed = _one(command, slot, running, functools.partial(give, name), limit_s)
            if failed and not ended.is_set():
                give(name, {"error": failed})

    threads = [threading.Thread(target=work, args=(slot,)) for slot in slots]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:  # interrupted, where there are any left
        ended.set()
        for process in list(running):
            _end(process)


def _one(
    command: Sequence[str], slot: Mapping[str, str], running: set[subprocess.Popen[str]],
    take: Callable[[Row], None], limit_s: float,
) -> str:  # fmt: skip
    """Runs a process to its end. Returns why it failed; empty where it did not."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            list(command), env={**os.environ, **slot}, stdout=subprocess.PIPE, stderr=said,
            text=True, start_new_session=True,
        )  # fmt: skip
        running.add(process)
        late = threading.Timer(limit_s, _end, [process])
        late.start()
        assert process.stdout is not None
        for line in process.stdout:
            try:
                take(json.loads(line))
            except ValueError:  # cut short by the end
                continue
        code = process.wait()
        on_time = late.is_alive()
        late.cancel()
        _end(process)  # compile workers may outlive it
        running.discard(process)
        if not on_time:
            return f"It took over {limit_s:.0f} s."
        if code == 0:
            return ""
        said.seek(0)
        return f"The process ended with {code}: {said.read()[-2000:]}"


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the process and all processes that it started."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        return


def python(*args: str) -> list[str]:
    """The command of this benchmark with other arguments."""
    return [sys.executable, sys.argv[0], *args]
