"""Something is done right after an import, and once."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from diode_engine.inductor.on_import import when_imported

NAME = "diode_imported_later"


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield
    sys.modules.pop(NAME, None)
    sys.meta_path[:] = finders


def write(folder: Path, text: str) -> None:
    (folder / f"{NAME}.py").write_text(text)
    importlib.invalidate_caches()


def test_looking_for_a_module_is_not_importing_it(tmp_path):
    write(tmp_path, "x = 1")
    before = list(sys.meta_path)
    done: list[int] = []
    when_imported(NAME, lambda: done.append(sys.modules[NAME].x))
    for _ in range(2):
        spec = importlib.util.find_spec(NAME)
        assert spec.origin == str(tmp_path / f"{NAME}.py")
    assert done == []
    module = importlib.import_module(NAME)
    assert done == [1]
    assert sys.meta_path == before  # nothing is left behind
    importlib.reload(module)
    assert done == [1]


def test_an_import_that_fails_can_be_tried_again(tmp_path):
    write(tmp_path, "x = 1 / 0")
    done: list[int] = []
    when_imported(NAME, lambda: done.append(sys.modules[NAME].x))
    with pytest.raises(ZeroDivisionError):
        importlib.import_module(NAME)
    write(tmp_path, "x = 2  # longer")
    importlib.import_module(NAME)
    assert done == [2]


def test_a_module_that_is_nowhere():
    when_imported(NAME, lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)


def test_one_that_is_there_already(tmp_path):
    write(tmp_path, "x = 3")
    importlib.import_module(NAME)
    done: list[int] = []
    when_imported(NAME, lambda: done.append(sys.modules[NAME].x))
    assert done == [3]


def test_several_actions_at_one_import(tmp_path):
    write(tmp_path, "x = 4")
    before = list(sys.meta_path)
    done: list[str] = []

    def first() -> None:
        done.append("first")

    for action in (first, lambda: done.append("second"), first):
        when_imported(NAME, action)
    importlib.import_module(NAME)
    assert sorted(done) == ["first", "second"]
    assert sys.meta_path == before
