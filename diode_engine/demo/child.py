"""Questions to another process, for work that changes torch for good or needs its own caches.

    python -m diode_engine.demo.child MODULE:FUNCTION

The question goes to the child's stdin as JSON; the child answers in lines of JSON on stdout, one
for each value that the function yields.
Whatever else it or a compiler prints goes to a log file.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from diode_engine.errors import DiodeError, IntegrationError

_ERROR = "error"  # the key of an answer that is the sentence of an error


def ask(
    function: str, question: Mapping[str, Any], *, log: Path, environment: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """The answers of the function ("module:name"), as they come. The caches of the child's
    compilers start empty and are removed at the end. Raises IntegrationError where the child fails:
    with the child's own sentence, or with one that names the log."""
    folder = tempfile.TemporaryDirectory(prefix="diode-demo-", ignore_cleanup_errors=True)
    with folder as caches, log.open("w") as errors, tempfile.TemporaryFile("w+") as asked:
        json.dump(question, asked)
        asked.seek(0)
        caches_of = {
            "TORCHINDUCTOR_CACHE_DIR": str(Path(caches, "inductor")),
            "TRITON_CACHE_DIR": str(Path(caches, "triton")),
        }
        with subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, function],
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **caches_of, **environment},
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    answer = json.loads(line)
                    if _ERROR in answer:
                        raise IntegrationError(answer[_ERROR])
                    yield answer
                status = process.wait()
            finally:
                process.kill()
    if status:
        raise IntegrationError(
            f"The process for {function} ended with status {status}; what it said is in {log}."
        )


def answer_question(function: str) -> None:
    """The child's side: reads the question, and writes what the function yields for it."""
    module, _, name = function.partition(":")
    answer = getattr(importlib.import_module(module), name)
    question = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # whatever a compiler prints is not an answer
        try:
            for line in answer(question):
                out.write(json.dumps(line) + "\n")
                out.flush()
        except DiodeError as error:
            out.write(json.dumps({_ERROR: str(error)}) + "\n")


if __name__ == "__main__":
    answer_question(sys.argv[1])
