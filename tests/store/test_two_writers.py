"""Two processes that write into one store at once, and a reader meanwhile: nothing is lost, and
nobody sees half of anything."""

from __future__ import annotations

from pathlib import Path

from tests.soak import crowd


def test_nothing_is_lost_and_nothing_seen_in_halves(
    place_of_module: str | Path, tmp_path: Path
) -> None:
    rows, reads = crowd.gather(place_of_module, 2, 1, tmp_path, seconds=2, batches=30)
    assert rows >= 3 * 100
    assert reads >= 2
