"""Small JSON files of all kinds: what is doubled, nested, not finite or too much is a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diode_engine.collect.planning.plan import read_candidates
from diode_engine.errors import DatasetError, DiodeError, RegistryError
from diode_engine.problems.sources import read_shapeset
from diode_engine.registry import facts
from diode_engine.registry.aliases import aliases_in
from diode_engine.registry.index import read_index
from diode_engine.registry.sources import Kind, ModelSource
from diode_engine.validation.solution import read_solution

SLUG = "nvidia-h200"


def aliases(path: Path) -> Any:
    (path.parent / SLUG).mkdir()
    path.rename(path.parent / SLUG / "aliases.json")
    return aliases_in(ModelSource(Kind.PACKAGE, path.parent, "theirs"), SLUG)


def registry(path: Path) -> Any:
    place = path.parent / "diode-home" / "models" / SLUG
    place.mkdir(parents=True)
    path.rename(place / facts.FILE)
    return facts.read(SLUG)


READERS: list[tuple[Callable[[Path], Any], type[DiodeError]]] = [
    (read_candidates, DatasetError),
    (read_shapeset, DatasetError),
    (read_solution, DatasetError),
    (read_index, RegistryError),
    (aliases, RegistryError),
    (registry, RegistryError),
]


@pytest.mark.parametrize(("reader", "error"), READERS, ids=[r.__name__ for r, _ in READERS])
@pytest.mark.parametrize(
    "data",
    [
        b'{"a": "x", "a": "x"}',
        b'{"a": ' * 400 + b"1" + b"}" * 400,
        b"[" * 100_000,
        b'{"a": "\\ud800"}',
        b'{"a": 1e999}',
        b'{"a": ' + b"1" * 5000 + b"}",
        b"[" + b"{}," * (2 << 20) + b"{}]",
        b"\xff",
    ],
    ids=["twice", "nested", "open", "surrogate", "infinite", "digits", "many", "bytes"],
)
def test_a_document_that_is_none_is_refused(
    tmp_path: Path, reader: Callable[[Path], Any], error: type[DiodeError], data: bytes
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(error) as caught:
        reader(path)
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()
