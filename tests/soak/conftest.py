"""Long tests: `make soak` runs them in full, `pytest tests/soak` a little of each. `make test` runs
none of them, but tests of its own over the same functions.

A test asks `tries` how often to try, and `rng` for what it draws:

    def test_something(tries, rng):
        for _ in range(tries(quick=10, full=1000)):
            ...
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from diode_engine import paths
from tests.soak import made

SEED = 20261122


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tries", default="quick",
        help="how often each long test tries: quick (the default), full, or a number",
    )  # fmt: skip
    parser.addoption("--seed", type=int, default=SEED, help="what the long tests draw with")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "soak" in item.path.parts:
            item.add_marker("soak")


@pytest.fixture
def tries(request: pytest.FixtureRequest) -> Callable[..., int]:
    """How often to try, of what is usual when it should be quick and when in full."""
    asked = request.config.getoption("--tries")

    def _tries(*, quick: int, full: int) -> int:
        return {"quick": quick, "full": full}.get(asked) or int(asked)

    return _tries


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """`--seed`; a test that fails shows it."""
    number = int(request.config.getoption("--seed"))
    print(f"The seed is {number}: repeat it with --seed {number}.")  # noqa: T201
    return number


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A generator of this test's own."""
    return random.Random(f"{seed} {request.node.name}")


@pytest.fixture
def a_store(tmp_path: Path) -> Path:
    return made.store(tmp_path / "good.db")


@pytest.fixture
def small_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder, and no models but those that a test registers."""
    monkeypatch.setattr(paths, "shipped_dir", lambda: tmp_path / "shipped")
    return made.model(tmp_path / "model")
