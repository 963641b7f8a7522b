"""Stores that are damaged, and disks that are full."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from diode_engine.store import write_dataset
from tests.soak import damage, work

Tries = Callable[..., int]


@pytest.mark.parametrize("how", ["flipped", "truncated"])
def test_every_command_on_a_damaged_store(
    tmp_path: Path, a_store: Path, tries: Tries, rng: random.Random, how: str
) -> None:
    n = tries(quick=20, full=1000)
    sound, commands = damage.damaged_stores(tmp_path, a_store, getattr(damage, how), n, rng)
    print(f"{how}: {n} stores, of which {sound} are sound, {commands + n} commands")  # noqa: T201


def test_every_command_that_writes_on_a_full_disk(
    tmp_path: Path, a_store: Path, tries: Tries, rng: random.Random
) -> None:
    file = tmp_path / "more.json"
    write_dataset(work.table(30, 20, first=500), file)
    n = tries(quick=12, full=300)
    failed, ran = damage.full_disks(tmp_path, a_store, file, n, rng)
    print(f"full disk: {ran} commands, of which {failed} failed for it")  # noqa: T201


def test_every_command_on_a_damaged_registry(
    tmp_path: Path, diode_home: Path, small_model: Path, tries: Tries, rng: random.Random
) -> None:
    n = tries(quick=20, full=1000)
    sound, commands = damage.damaged_registries(
        diode_home, small_model, tmp_path / "out.diode.zip", n, rng
    )
    print(f"registry: {n} damaged, of which {sound} pass, {commands} commands")  # noqa: T201
