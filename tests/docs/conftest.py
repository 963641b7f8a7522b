"""What is made once, by whichever test process comes first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

MadeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """The folder of that name, which the function has filled."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, fill: Callable[[Path], None]) -> Path:
        folder, making = shared / name, shared / f"{name}-in-the-making"
        with FileLock(shared / f"{name}.lock"):
            if not folder.exists():
                making.mkdir()
                fill(making)
                making.rename(folder)
        return folder

    return made
