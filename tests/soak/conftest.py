"""How often a soak test tries; `make test` takes the default, seconds on two cores."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tries", type=int, help="how often the tests in tests/soak try")
