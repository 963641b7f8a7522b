"""A training before it starts: the data that it would learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine import registry
from diode_engine.errors import DiodeError
from diode_engine.models.manifest import check_name
from diode_engine.models.model_types import TUNED
from diode_engine.store import Store, read_dataset
from diode_engine.store.problem_counts import statistics
from diode_engine.store.run_query import known_values
from diode_engine.store.transfer import read_datasets
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import MIN_FITTED, MIN_HELD_OUT, MIN_WATCHED

# With fewer problems a training fails, however they are split.
_LEAST = MIN_FITTED + MIN_WATCHED + MIN_HELD_OUT


@dataclass(frozen=True)
class Part:
    """Timings of one GPU with one version of torch; a model is made from one such part."""

    gpu: str
    torch: str
    problems: int
    timings: int
    failed: int


@dataclass(frozen=True)
class TrainingPlan:
    """What a training would learn from (`chosen`: the largest part of the chosen GPU's timings;
    None where there is nothing, or a GPU must still be chosen) and what is left out, the registered
    models, and the default hyper-parameters as texts by field; or sentences for the fields with
    mistakes."""

    gpus: tuple[str, ...]
    chosen: Part | None
    left_out: tuple[Part, ...]
    models: tuple[str, ...]
    known: Mapping[str, list[str]]  # values of fields that filter queries name
    usual: Mapping[str, str]
    mistakes: Mapping[str, str]


def planned(store: Store, spec: Mapping[str, Any]) -> TrainingPlan:
    """Return the plan of `diode-engine train` with these options (as `runs.command_line` takes
    them). Needs no torch."""
    mistakes: dict[str, str] = {}
    parts: tuple[Part, ...] = ()
    files, query, base = spec.get("dataset"), spec.get("query", ""), spec.get("fine_tune")
    source = "dataset" if files else "query"
    try:
        if files:
            parts = _in_files(tuple((path, Path(path).stat().st_mtime_ns) for path in files))
        else:
            parts = _in_store(store, query)
    except OSError as error:
        mistakes[source] = f"{error.filename}: {error.strerror}."
    except DiodeError as error:
        mistakes[source] = str(error)
    gpus, chosen = _choose_part(parts, spec.get("hardware", ""))
    if source not in mistakes:
        if not parts and (files or query):
            mistakes[source] = "There are no timings of such problems."
        elif not parts:
            mistakes[source] = (
                "There are no timings in the store yet: import those that come with Diode (i), or "
                "collect some (C)."
            )
        elif chosen is not None and chosen.problems < _LEAST:
            mistakes[source] = (
                f"{chosen.problems:,} problems are too few to learn from and to judge by; it "
                f"takes {_LEAST} at least, and hundreds for a good model."
            )
    if base is not None:
        try:
            registry.resolve_for(base, None if chosen is None else chosen.gpu)
        except DiodeError as error:
            mistakes["fine_tune"] = str(error)
    if "name" in spec:
        try:
            check_name(spec["name"])
        except DiodeError as error:
            mistakes["name"] = str(error)
    models = tuple(dict.fromkeys(model.reference for model in registry.list_models()))
    usual = _usual(tuned=base is not None)
    left_out = tuple(part for part in parts if part is not chosen)
    return TrainingPlan(gpus, chosen, left_out, models, known_values(store), usual, mistakes)


def _in_store(store: Store, query: str) -> tuple[Part, ...]:
    return tuple(
        Part(group.values[0], group.values[1], group.problems, group.timings, group.failed)
        for group in statistics(store, query, by=("gpu", "torch"))
    )


@lru_cache(maxsize=2)  # while a person changes other fields
def _in_files(files: tuple[tuple[str, int], ...]) -> tuple[Part, ...]:
    """Return the parts in dataset files, each given with the time of its last change."""
    paths = [Path(path) for path, _ in files]
    table = read_dataset(paths[0]) if len(paths) == 1 else read_datasets(paths)
    parts = []
    for i, environment in enumerate(table.environments):
        rows = table.environment == i
        problems, failed = len(np.unique(table.problem[rows])), (table.failure[rows] != 0).sum()
        part = Part(
            environment.hardware.name, environment.torch, problems, int(rows.sum()), int(failed)
        )
        parts.append(part)
    return tuple(part for part in parts if part.timings)


def _choose_part(parts: tuple[Part, ...], gpu: str) -> tuple[tuple[str, ...], Part | None]:
    """Return the GPUs, and the largest part of the chosen one; of the only one, if there is one."""
    gpus = tuple(dict.fromkeys(part.gpu for part in parts))
    wanted = [part for part in parts if part.gpu == gpu or len(gpus) == 1]
    return gpus, max(wanted, key=lambda part: part.timings, default=None)


def _usual(*, tuned: bool) -> Mapping[str, str]:
    settings = TrainingSettings()
    network, trees = settings.find(TUNED if tuned else "network"), settings.find("trees")
    return {
        "hidden": ", ".join(map(str, network.hidden)),
        "layers": str(len(network.hidden)),
        "epochs": str(network.epochs),
        "batch_size": f"{network.problems * network.rows:,}",
        "learning_rate": str(network.learning_rate),
        "weight_decay": str(network.weight_decay),
        "patience": str(network.patience),
        "rounds": str(trees.rounds),
        "depth": str(trees.max_depth),
    }
