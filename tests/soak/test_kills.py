"""Killed at random moments."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak import kills

Tries = Callable[..., int]


@pytest.mark.parametrize("what", ["importing", "migrating"])
def test_a_store_is_sound_after_a_kill(
    tmp_path: Path, diode_home: Path, tries: Tries, rng: random.Random, what: str
) -> None:
    operation = getattr(kills, what)(tmp_path)
    done, late = kills.run(operation, tries(quick=4, full=200), rng, diode_home)
    print(f"{what}: killed {done} times, {late} times too late")  # noqa: T201


@pytest.mark.parametrize("what", ["registering", "promoting"])
def test_a_registry_is_sound_after_a_kill(
    small_model: Path, diode_home: Path, tries: Tries, rng: random.Random, what: str
) -> None:
    operation = getattr(kills, what)(small_model)
    done, late = kills.run(operation, tries(quick=4, full=200), rng, diode_home)
    print(f"{what}: killed {done} times, {late} times too late")  # noqa: T201
