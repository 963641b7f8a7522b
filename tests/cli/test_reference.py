"""docs/commands.md says what the commands say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HOW = "run `python docs/write_commands.py`"


@pytest.fixture(scope="module")
def writer() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "write_commands.py"))


def test_the_reference_is_of_these_commands(writer: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == writer["reference"](), HOW
