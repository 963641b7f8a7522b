"""Where several collections write into one store: which of them times which problem."""

from __future__ import annotations

from diode_engine.core.content_key import content_key
from diode_engine.core.hardware import Environment
from diode_engine.core.problem import Problem
from diode_engine.location import Location
from diode_engine.store.backends import backend_of


class Claims:
    """The claims of one collection on problems. Other collections see them while this process
    lives: where the store is a file, those on this machine; where it is on a server, all that use
    the store.

    A claim is on a number made of the problem and the environment (see store.backends). It ends
    with the process, however that ends.
    """

    def __init__(self, store: Location) -> None:
        """Raises StoreError where no claim can be made."""
        self._claims = backend_of(store).claims()

    def take(self, problem: Problem, environment: Environment) -> bool:
        """Claims the problem; False where another collection has it."""
        return self._claims.take(_number(problem, environment))

    def give_back(self, problem: Problem, environment: Environment) -> None:
        """Ends a claim: another collection may take the problem."""
        self._claims.give_back(_number(problem, environment))

    def close(self) -> None:
        """Gives all claims back."""
        self._claims.close()


def _number(problem: Problem, environment: Environment) -> int:
    """A number under 2⁶⁰."""
    return int(content_key("claim", {"of": problem.key, "in": environment.key})[:15], 16)
