"""Long tests: `make soak` runs them in full, `make test` a little of each.

A test asks `tries` how often to try, and `rng` for what it draws:

    def test_something(tries, rng):
        for _ in range(tries(quick=10, full=1000)):
            ...
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

SEED = 20261122


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tries", default="quick",
        help="how often each long test tries: quick (the default), full, or a number",
    )  # fmt: skip
    parser.addoption("--seed", type=int, default=SEED, help="what the long tests draw with")


@pytest.fixture
def tries(request: pytest.FixtureRequest) -> Callable[..., int]:
    """How often to try, of what is usual when it should be quick and when in full."""
    asked = str(request.config.getoption("--tries", "quick"))
    return lambda *, quick, full: {"quick": quick, "full": full}.get(asked) or int(asked)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """A generator of this test's own, by `--seed`; a test that fails shows it."""
    seed = int(request.config.getoption("--seed", SEED))
    print(f"The seed is {seed}: repeat it with --seed {seed}.")  # noqa: T201
    return random.Random(f"{seed} {request.node.name}")
