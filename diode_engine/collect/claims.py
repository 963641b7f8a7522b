"""Which problem is being timed by which of several collections into one store."""

from __future__ import annotations

from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem, content_key
from diode_engine.location import Location
from diode_engine.store.claims import claims_of


class Claims:
    """One collection's claims, which other processes see while it lives: those on this machine
    where the store is a file, and all that use it where it is on a server.

    Each is a claim of the store's on a number that follows from the problem and the environment.
    It ends with the process, however that ends.
    """

    def __init__(self, store: Location) -> None:
        """Raises StoreError where none can be made."""
        self._claims = claims_of(store)

    def take(self, problem: Problem, environment: Environment) -> bool:
        """False where another collection has it."""
        return self._claims.take(_number(problem, environment))

    def give_back(self, problem: Problem, environment: Environment) -> None:
        self._claims.give_back(_number(problem, environment))

    def close(self) -> None:
        """Gives all back."""
        self._claims.close()


def _number(problem: Problem, environment: Environment) -> int:
    """Under 2⁶⁰."""
    return int(content_key("claim", {"of": problem.key, "in": environment.key})[:15], 16)
