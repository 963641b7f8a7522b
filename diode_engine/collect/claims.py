"""Which problem is being timed by which of several collections into one store."""

from __future__ import annotations

import fcntl
from pathlib import Path

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem, content_key
from diode_engine.errors import CollectionError


class Claims:
    """One collection's claims, which other processes on this machine see while it lives.

    A claim is a lock on one byte of a file beside the store, whose place in it follows from the
    problem and the environment. The kernel drops it when the process ends, however it ends. The
    locks are the process's: they say nothing to its own threads.
    """

    def __init__(self, store: Path) -> None:
        """Raises CollectionError where the file cannot be made."""
        path = store.with_name(f"{store.name}-claims")
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise CollectionError(
                f"{path}, by which collections into one store tell each other what they time, "
                f"cannot be written: {error.strerror or error}."
            ) from error

    def take(self, problem: Problem, environment: Environment) -> bool:
        """False where another collection has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(problem, environment))
        except BlockingIOError:
            return False
        return True

    def give_back(self, problem: Problem, environment: Environment) -> None:
        if not self._file.closed:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(problem, environment))

    def close(self) -> None:
        """Gives all back."""
        self._file.close()


def _place(problem: Problem, environment: Environment) -> int:
    """A number under 2⁶⁰."""
    return int(content_key("claim", {"of": problem.key, "in": environment.key})[:15], 16)
