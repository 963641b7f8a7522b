"""Questions to another process, for work that changes torch for good or needs its own caches."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from diode_engine.errors import DiodeError, IntegrationError


def ask(
    function: str, question: Mapping[str, Any], *, log: Path, environment: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The answers that the function ("module:name") yields, as they come. The caches of the child's
    compilers start empty and are removed at the end; what it or a compiler prints goes to the log.
    Raises IntegrationError where the child fails: with the child's own sentence, or with one that
    names the log."""
    spawned = multiprocessing.get_context("spawn")
    answers, theirs = spawned.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="diode-demo-", ignore_cleanup_errors=True) as caches:
        variables = {
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "TRITON_CACHE_DIR": f"{caches}/triton",
            **environment,
        }
        process = spawned.Process(target=_answer, args=(theirs, function, question, log, variables))
        process.start()
        theirs.close()
        try:
            with contextlib.suppress(EOFError):
                while True:
                    answer = answers.recv()
                    if isinstance(answer, IntegrationError):
                        raise answer
                    yield answer
            process.join()
        finally:
            process.kill()
    if process.exitcode:
        raise IntegrationError(
            f"The process for {function} ended with status {process.exitcode}; what it said is in "
            f"{log}."
        )


def _answer(
    answers: Connection, function: str, question: Mapping[str, Any], log: Path,
    variables: Mapping[str, str],
) -> None:  # fmt: skip
    os.environ.update(variables)
    with log.open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    module, _, name = function.partition(":")
    try:
        for answer in getattr(importlib.import_module(module), name)(question):
            answers.send(answer)
    except DiodeError as error:
        answers.send(IntegrationError(str(error)))
