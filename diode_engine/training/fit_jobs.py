"""The parts of fits that worker processes do (`process_fits`), each with files for what is large.

A job is a map of plain values, and says what it has made by a file that it names beforehand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from diode_engine import features
from diode_engine.collect.processes import protocol
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.models.artifact import load_member
from diode_engine.models.families import FAMILIES
from diode_engine.models.fitting import Checkpoint, Examples, FitProgress
from diode_engine.models.members import answers_of
from diode_engine.models.protocol import Matrix, TimingModel
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.lessons import (
    Drawn,
    LessonProblem,
    ProblemOnGpu,
    lessons_of,
    part,
    with_timings,
)

TRAIN, HELD_OUT = "train", "held_out"  # examples in a folder
_PLACE = np.dtype("<i4")  # of a candidate, as it is sent


class Caller(Protocol):
    """Whoever asked for a job."""

    def say(self, message: protocol.Message) -> None: ...

    def hear(self) -> protocol.Message:
        """Waits for an answer."""


def save_examples(folder: Path, name: str, examples: Examples) -> None:
    """Writes them so that several processes can share the rows. Raises OSError."""
    for column in ("x", "log_us", "problem"):
        np.save(_file(folder, name, column), getattr(examples, column))


def load_examples(folder: Path, name: str, feature_set: features.FeatureSet) -> Examples:
    """The inverse. The rows stay in the file: all processes that read it have them in memory
    once."""
    x = np.asarray(np.load(_file(folder, name, "x"), mmap_mode="r"))
    log_us, problem = (np.load(_file(folder, name, column)) for column in ("log_us", "problem"))
    return Examples(x, log_us, problem, feature_set=feature_set)


def _file(folder: Path, name: str, column: str) -> Path:
    return folder / f"{name}-{column}.npy"


def files_failed(error: OSError) -> str:
    """The sentence for a user where the files of fits, or their processes, cannot be made."""
    return (
        f"The processes of the fits or their files in {tempfile.gettempdir()} cannot be made: "
        f"{error.strerror or error}. Make room there, or name another folder by TMPDIR, and "
        "train again; what is finished is kept."
    )


def do(job: Mapping[str, Any], caller: Caller) -> None:
    """Does a job."""
    _DO[job["job"]](job, caller)


def fit_job(
    member: str,
    settings: Any,
    version: int,
    examples: Path,
    made: Path,
    *,
    taught_by: Path | None = None,
    teacher: Sequence[tuple[str, Path]] = (),
    keep: tuple[Checkpoints, Any] | None = None,
) -> protocol.Message:
    """Fits a member of this family to the examples in a folder, or, with `taught_by`, to the
    lessons in that folder, which are of this `teacher`. With `keep` (the checkpoints, and what the
    member is made from) it continues where it was interrupted. It says {"progress": fields of a
    FitProgress}."""
    return {
        "job": "fit",
        "member": member,
        "settings": {field.name: getattr(settings, field.name) for field in fields(settings)},
        "features": version,
        "examples": str(examples),
        "taught_by": None if taught_by is None else str(taught_by),
        "teacher": _sent(teacher),
        "keep": None if keep is None else [str(keep[0].folder), keep[0].seconds, keep[1]],
        "made": str(made),
    }


def _fit(job: Mapping[str, Any], caller: Caller) -> None:
    sees = features.SETS[job["features"]]
    method = FAMILIES[job["member"]].fitting_method()
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in job["settings"].items()
    }
    settings = replace(method.settings, **given)  # type: ignore[type-var]

    def told(progress: FitProgress) -> None:
        caller.say({"progress": [getattr(progress, field.name) for field in fields(FitProgress)]})

    def make(checkpoint: Checkpoint | None) -> TimingModel:
        train, held_out = (
            load_examples(Path(job["examples"]), name, sees) for name in (TRAIN, HELD_OUT)
        )
        if job["taught_by"] is not None:
            train, held_out = _taught(Path(job["taught_by"]), train)
        model = method.fit(train, held_out, settings, told, checkpoint)
        if method.with_teacher is None:
            return model
        return method.with_teacher(model, _teacher(job, sees), train, held_out, settings)

    if job["keep"] is None:
        model = make(None)
    else:
        folder, seconds, what = job["keep"]
        model = Checkpoints(Path(folder), seconds=seconds).fitted(what, job["member"], make, sees)
    Path(job["made"]).write_bytes(model.to_bytes())


def _taught(folder: Path, timed: Examples) -> tuple[Examples, Examples]:
    """(what is learned, what early stopping watches) of the lessons and answers in the folder."""
    parts = [dict(np.load(path)) for path in _in_order(folder, "lessons")]
    counts = [count for each in parts for count in each["counts"].tolist()]
    made = [each for each in parts if len(each["counts"])]
    taught = lessons_of(
        [each["x"] for each in made], [each["heads"] for each in made], counts, timed.feature_set
    )
    del parts, made
    learned, checks = part(taught)
    answers = np.concatenate([np.load(path) for path in _in_order(folder, "answers")], axis=1)
    return with_timings(learned, answers, timed), checks


def part_file(folder: Path, what: str, place: int) -> Path:
    """Where the lessons or the answers of this place among all are."""
    return folder / f"{what}-{place}.{'npz' if what == 'lessons' else 'npy'}"


def _in_order(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}-*"), key=lambda p: int(p.stem.rpartition("-")[2]))


def answers_job(
    teacher: Sequence[tuple[str, Path]], version: int, examples: Path, rows: slice, made: Path
) -> protocol.Message:
    """What a teacher, (family, file) of each member, says of some of the rows to learn."""
    return {
        "job": "answers",
        "teacher": _sent(teacher),
        "features": version,
        "examples": str(examples),
        "rows": [rows.start, rows.stop],
        "made": str(made),
    }


def _answers(job: Mapping[str, Any], caller: Caller) -> None:
    sees = features.SETS[job["features"]]
    x = np.load(_file(Path(job["examples"]), TRAIN, "x"), mmap_mode="r")
    rows: Matrix = np.asarray(x[slice(*job["rows"])])
    np.save(job["made"], answers_of(_teacher(job, sees), rows))


def lessons_job(
    teacher: Sequence[tuple[str, Path]],
    version: int,
    problems: Sequence[ProblemOnGpu],
    kernels: Sequence[str],
    torch: str,
    made: Path,
) -> protocol.Message:
    """The lessons of some problems (see `lessons.lessons`). It says {"counted": how many candidates
    each has and which of them are libraries'}, and is told {"drawn": …} (`drawn_message`)."""
    return {
        "job": "lessons",
        "teacher": _sent(teacher),
        "features": version,
        "problems": [[problem.to_dict(), gpu.to_dict()] for problem, gpu in problems],
        "kernels": list(kernels),
        "torch": torch,
        "made": str(made),
    }


def counted(message: protocol.Message) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """What `Draws.of` takes for each problem."""
    return [(count, _unpacked(libraries)) for count, libraries in message["counted"]]


def drawn_message(draw: Callable[[int, Any], Drawn | None], counts: Any) -> protocol.Message:
    """The answer to what was counted."""
    all_drawn = (draw(*each) for each in counts)
    return {"drawn": [d and [_packed(d.asked), _packed(d.others)] for d in all_drawn]}


def _lessons(job: Mapping[str, Any], caller: Caller) -> None:
    sees, kernels = features.SETS[job["features"]], frozenset(job["kernels"])
    gpus = [Hardware.from_dict(gpu) for _, gpu in job["problems"]]
    asked = [
        LessonProblem.of(Problem.from_dict(problem), kernels, gpu, job["torch"])
        for (problem, _), gpu in zip(job["problems"], gpus, strict=True)
    ]
    caller.say({"counted": [[len(a.candidates), _packed(a.libraries)] for a in asked]})
    teacher = _teacher(job, sees)
    made = [
        lesson_problem.answered(Drawn(*map(_unpacked, drawn)), teacher, gpu, sees)
        for lesson_problem, gpu, drawn in zip(asked, gpus, caller.hear()["drawn"], strict=True)
        if drawn is not None
    ]
    counts = np.array([len(x) for x, _ in made], np.intp)
    both: dict[str, Any] = {}
    if made:
        both = {
            "x": np.concatenate([x for x, _ in made]),
            "heads": np.concatenate([heads for _, heads in made], axis=1),
        }
    np.savez(job["made"], counts=counts, **both)


def _packed(places: np.ndarray[Any, Any]) -> bytes:
    return places.astype(_PLACE).tobytes()


def _unpacked(data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, _PLACE).astype(np.intp)


def _sent(teacher: Sequence[tuple[str, Path]]) -> list[list[str]]:
    return [[family, str(path)] for family, path in teacher]


def _teacher(job: Mapping[str, Any], sees: features.FeatureSet) -> list[TimingModel]:
    return [_member(family, path, sees) for family, path in job["teacher"]]


@lru_cache(maxsize=16)  # a process is asked for many lessons of the same teacher
def _member(family: str, path: str, sees: features.FeatureSet) -> TimingModel:
    return load_member(family, Path(path).read_bytes(), sees)


_DO: dict[str, Callable[[Mapping[str, Any], Caller], None]] = {
    "fit": _fit,
    "answers": _answers,
    "lessons": _lessons,
}


def progress_of(message: protocol.Message) -> FitProgress:
    """What a fit says."""
    return FitProgress(*message["progress"])


def row_parts(rows: int, most: int) -> Iterator[slice]:
    """The rows in parts of so many."""
    for first in range(0, rows, most):
        yield slice(first, min(first + most, rows))
