"""docs/commands.md says what the commands say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOW = "run `python docs/write_commands.py`"


@pytest.fixture(scope="module")
def writer():
    return runpy.run_path(str(ROOT / "docs" / "write_commands.py"))


def test_the_reference_is_of_these_commands(writer):
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == writer["reference"](), HOW
