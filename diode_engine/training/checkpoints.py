"""The state of a training's fits, in a folder, so that a training that was interrupted can
continue.

A fit's checkpoint is named by what the fit is made from: the timings, the settings and the seed. If
the same fit is asked for again, by `runs resume` or by the same command, it continues. With other
timings a fit starts from the beginning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diode_engine import features
from diode_engine.atomic import UNFINISHED, write_whole
from diode_engine.documents import Limits, Malformed, read_bytes
from diode_engine.errors import ModelError, TrainingError, explain_os_error
from diode_engine.models.artifact import load_member
from diode_engine.models.fitting import Checkpoint, CheckpointError, unpack
from diode_engine.models.protocol import TimingModel

log = logging.getLogger(__name__)

SECONDS = 10.0  # between two checkpoints of a fit: an interruption loses at most so much work
_KEPT_SECONDS = 30 * 24 * 3600.0  # a checkpoint that was not continued in this time is removed
# A file that is still unfinished after this time was left by a process that was killed.
_WRITTEN_SECONDS = 60.0
_LIMITS = Limits(bytes=1 << 30)  # four times what a member of a model may have


class Checkpoints:
    """The checkpoints in a folder, which is made when it is needed. Every method raises
    TrainingError where it cannot be written."""

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.seconds = seconds
        self._clock = clock
        self._used: set[str] = set()  # keys: the names of files up to their first dot

    def fitted(
        self,
        what: Any,
        family: str,
        make: Callable[[Checkpoint], TimingModel],
    ) -> TimingModel:
        """The model that was made before an interruption, or else the one that `make` makes. `what`
        is JSON that names everything that the model is made from."""
        model = self.finished(what, family)
        if model is not None:
            return model
        progress, done = self._files(what, family)
        try:
            model = make(_CheckpointFile(progress, self.seconds, self._clock))
        except CheckpointError as error:
            log.warning("The checkpoint %s is not used: %s", progress, error)
            _remove(progress)
            model = make(_CheckpointFile(progress, self.seconds, self._clock))
        _write(done, model.to_bytes())
        _remove(progress)
        return model

    def finished(self, what: Any, family: str) -> TimingModel | None:
        """The model that an earlier call of `fitted` has made; None where there is none."""
        _, done = self._files(what, family)
        if done.exists():
            try:
                return load_member(family, read_bytes(done, _LIMITS))
            except (ModelError, Malformed, OSError) as error:
                log.warning("The finished fit %s is not used: %s", done, error)
        return None

    def _files(self, what: Any, family: str) -> tuple[Path, Path]:
        """(the file of the fit while it is in progress, the file of the finished model)."""
        text = json.dumps([what, family, features.VERSION, features.NAMES_HASH])
        key = hashlib.sha256(text.encode()).hexdigest()[:32]
        progress, done = self.folder / f"{key}.safetensors", self.folder / f"{key}.model"
        self._used.add(key)
        return progress, done

    def clear(self) -> None:
        """Removes the checkpoints that were used, and old ones: the training has ended."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                unfinished = path.name.startswith(UNFINISHED)
                kept = _WRITTEN_SECONDS if unfinished else _KEPT_SECONDS
                is_used = path.name.partition(".")[0] in self._used
                if is_used or time.time() - path.stat().st_mtime > kept:
                    path.unlink()
            self.folder.rmdir()  # if nothing is left


class _CheckpointFile:
    """A Checkpoint in a file that is written at most every so many seconds."""

    def __init__(self, path: Path, seconds: float, clock: Callable[[], float]) -> None:
        self._path = path
        self._seconds = seconds
        self._clock = clock
        self._saved = clock()

    def load(self) -> bytes | None:
        try:
            data = read_bytes(self._path, _LIMITS)
            unpack(data)
        except FileNotFoundError:
            return None
        except (OSError, Malformed, TrainingError) as error:
            log.warning("The checkpoint %s is not used: %s", self._path, error)
            return None
        return data

    def save(self, state: Callable[[], bytes]) -> None:
        if self._clock() - self._saved >= self._seconds:
            _write(self._path, state())
            self._saved = self._clock()

    def part(self, name: str) -> Checkpoint:
        path = self._path.with_suffix(f".{name}{self._path.suffix}")
        return _CheckpointFile(path, self._seconds, self._clock)


def _remove(progress: Path) -> None:
    """Remove the file of a fit in progress, and those of its parts."""
    for path in progress.parent.glob(f"{progress.stem}.*{progress.suffix}"):
        path.unlink()
    progress.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Writes the whole file, or leaves it as it was."""
    todo = "Free some space or get the right to write there, then resume the training."
    with explain_os_error(
        lambda why: TrainingError(f"{why} {todo}"), f"The checkpoint {path} cannot be written"
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
