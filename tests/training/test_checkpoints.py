"""Checkpoints: what is found again, what is not believed, and what is cleared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from diode_engine.atomic import UNFINISHED
from diode_engine.errors import TrainingError
from diode_engine.models.fitting import Checkpoint, CheckpointError, history_of, pack
from diode_engine.models.network import Network
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import learnable
from tests.samples import weighing
from tests.training.conftest import fit


def network(value: float = 0.5) -> Network:
    return weighing({}, value)


class Stopped(Exception):
    pass


def never(checkpoint: Checkpoint) -> Network:
    raise AssertionError("it was there already")


def test_a_finished_fit_is_not_made_again(tmp_path):
    first = Checkpoints(tmp_path / "c").fitted(["data", 1], "network", lambda _: network())
    again = Checkpoints(tmp_path / "c").fitted(["data", 1], "network", never)
    assert again.to_bytes() == first.to_bytes()


def test_other_data_settings_or_seeds_are_another_fit(tmp_path):
    made = [
        Checkpoints(tmp_path).fitted(what, "network", lambda _, place=place: network(place))
        for place, what in enumerate((["data", 1], ["data", 2], ["other", 1]))
    ]
    assert [m.to_bytes() for m in made] == [network(place).to_bytes() for place in range(3)]


def cut_short(clock: Callable[[], float], folder: Path) -> list[bytes | None]:
    """What a fit finds that saves three times and is then cut short; again and again."""
    found: list[bytes | None] = []

    def make(checkpoint: Checkpoint) -> Network:
        found.append(checkpoint.load())
        for step in range(3):
            checkpoint.save(lambda step=step: pack({}, step))  # type: ignore[misc]
        raise Stopped

    for _ in range(2):
        with pytest.raises(Stopped):
            Checkpoints(folder, seconds=10, clock=clock).fitted("what", "network", make)
    return found


def test_a_fit_finds_what_it_saved_last_and_saves_now_and_then(tmp_path):
    times = iter([0.0, 11.0, 11.0, 12.0, 22.0, 22.0, *[30.0] * 9])
    # At 11 it is time, at 12 not, at 22 again.
    assert cut_short(lambda: next(times), tmp_path) == [None, pack({}, 2)]


def test_a_part_of_a_fit_has_a_file_of_its_own_until_the_fit_has_ended(tmp_path):
    ends = False

    def make(checkpoint: Checkpoint) -> Network:
        part = checkpoint.part("sieve")
        if not ends:
            checkpoint.save(lambda: pack({}, 1))
            part.save(lambda: pack({}, 2))
            raise Stopped
        assert (checkpoint.load(), part.load()) == (pack({}, 1), pack({}, 2))
        return network()

    checkpoints = Checkpoints(tmp_path, seconds=0)
    with pytest.raises(Stopped):
        checkpoints.fitted("what", "network", make)
    ends = True
    checkpoints.fitted("what", "network", make)
    assert [path.suffix for path in tmp_path.iterdir()] == [".model"]


def test_a_training_that_is_given_up_leaves_no_part_of_a_fit(tmp_path):
    def make(checkpoint: Checkpoint) -> Network:
        checkpoint.part("sieve").save(lambda: pack({}, 2))
        raise Stopped

    checkpoints = Checkpoints(tmp_path / "c", seconds=0)
    with pytest.raises(Stopped):
        checkpoints.fitted("what", "network", make)
    checkpoints.clear()
    assert not (tmp_path / "c").exists()


def test_what_is_damaged_is_not_used(tmp_path, caplog):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.fitted("what", "network", lambda _: network())
    (done,) = tmp_path.iterdir()
    done.write_bytes(done.read_bytes()[:-7])
    Checkpoints(tmp_path).fitted("what", "network", lambda _: network())
    assert "is not used" in caplog.text
    done.with_suffix(".safetensors").write_bytes(b"rubbish")
    done.unlink()

    def make(checkpoint: Checkpoint) -> Network:
        assert checkpoint.load() is None
        return network()

    checkpoints.fitted("what", "network", make)


def test_the_end_clears_what_was_used_and_what_is_old(tmp_path):
    folder = tmp_path / "c"
    Checkpoints(folder).fitted("of another training", "network", lambda _: network())
    (other,) = folder.iterdir()
    mine = Checkpoints(folder)
    mine.fitted("mine", "network", lambda _: network())
    mine.clear()
    assert list(folder.iterdir()) == [other]
    os.utime(other, (0, 0))
    Checkpoints(folder).clear()
    assert not folder.exists()


def test_the_end_clears_what_a_killed_process_left_unfinished(tmp_path):
    """But not what another training writes now."""
    left, written = (tmp_path / f"{UNFINISHED}{name}" for name in ("left", "written"))
    for path in (left, written):
        path.touch()
    os.utime(left, (time.time() - 100,) * 2)
    Checkpoints(tmp_path).clear()
    assert list(tmp_path.iterdir()) == [written]


def test_a_fit_begins_anew_where_its_checkpoint_is_another_fits(tmp_path, caplog):
    found: list[bytes | None] = []

    def make(checkpoint: Checkpoint) -> Network:
        found.append(checkpoint.load())
        if found[-1] is not None:
            raise CheckpointError("A checkpoint is of another fit.")
        checkpoint.save(lambda: pack({}, 1))
        if len(found) == 1:
            raise Stopped
        return network()

    checkpoints = Checkpoints(tmp_path, seconds=0)
    with pytest.raises(Stopped):
        checkpoints.fitted("what", "network", make)
    assert checkpoints.fitted("what", "network", make).to_bytes() == network().to_bytes()
    assert [saved is None for saved in found] == [True, False, True]
    assert "is not used: A checkpoint is of another fit" in caplog.text


@pytest.mark.parametrize(
    "steps",
    [None, [3], [[1, 2, 0.1]], [[2, 2, 0.1, 0.1, 0.1, 0.1]], [[1, 2, "x", 0.1, 0.1, 0.1]], {}],
)
def test_a_history_that_is_none_is_refused(steps):
    assert history_of([[1, 2, 0.1, 0.9, 0.5, 0.4]])[0].step == 1
    with pytest.raises(CheckpointError, match="how far its fit was"):
        history_of(steps)


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path, timings):
    (tmp_path / "c").write_text("where the folder would be")
    settings = TrainingSettings().but("trees", rounds=2, max_depth=2, threads=1)
    with pytest.raises(TrainingError, match="cannot be written"):
        fit(learnable(timings), "trees", settings=settings, checkpoints=Checkpoints(tmp_path / "c"))
