"""How often a soak test tries."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tries", default="quick", help="quick, full or a number")


@pytest.fixture
def tries(request: pytest.FixtureRequest) -> Callable[..., int]:
    asked = request.config.getoption("--tries")
    return lambda *, quick, full: {"quick": quick, "full": full}.get(asked) or int(asked)
