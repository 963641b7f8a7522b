"""Rows of benchmarks in files, and processes that send rows: a crash or a hang costs one task."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, one JSON object a line, compressed (.zst) or not. A row that was cut
    short is left out."""
    text = path.read_bytes()
    if path.suffix == ".zst":
        import zstandard

        text = zstandard.ZstdDecompressor().decompressobj().decompress(text)
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


class Rows:
    """Rows in a file, one JSON object a line: those of earlier runs, and new ones, each written at
    once. Without a path they are only kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Row] = []
        if path is not None and path.exists():
            self.rows = read_rows(path)
            if path.read_bytes()[-1:] not in (b"", b"\n"):
                path.open("a").write("\n")

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


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


def need_gpu() -> None:
    """Ends the process where there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        print("There is no NVIDIA GPU here, which this benchmark needs.", file=sys.stderr)
        sys.exit(0)


@contextlib.contextmanager
def always(summary: Callable[[], None]) -> Iterator[None]:
    """Prints the summary at the end, also where the process is told to end earlier (SIGTERM)."""

    def stop(*_: Any) -> None:
        raise SystemExit(1)  # not an Exception, since autotuning passes over those

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        summary()


def leave() -> None:
    """Ends the process now, without waiting for compiles that were interrupted."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
