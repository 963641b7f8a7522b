"""A training before it starts: the options that a person chose, and the data that it would learn
from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diode_engine.errors import DiodeError, QueryError
from diode_engine.models.families import ENSEMBLE, TUNED, members_of, trainable

if TYPE_CHECKING:
    from diode_engine.core.table import TimingTable
    from diode_engine.store import Store

FAMILIES = tuple(sorted(trainable(), key=lambda name: name != ENSEMBLE))  # the usual one first
RANKINGS = ("listwise", "regret", "pairwise", "none")
HELD_OUT, NOTHING = "a fifth", "nothing"  # what is held out of what the registered model learns
# The values of the form's fields where a person has changed nothing.
USUAL = {
    "query": "", "dataset": "", "hardware": "", "fine_tune": "", "family": ENSEMBLE, "name": "",
    "all": HELD_OUT, "default": "", "search": "", "seed": "0", "hidden": "", "layers": "",
    "epochs": "", "batch_size": "", "learning_rate": "", "weight_decay": "", "patience": "",
    "ranking": RANKINGS[0], "rounds": "", "depth": "",
}  # fmt: skip
NETWORK_FIELDS = ("hidden", "layers", "epochs", "batch_size", "learning_rate", "weight_decay",
               "patience", "ranking")  # fmt: skip
TREE_FIELDS = ("rounds", "depth")


def fields_of(values: Mapping[str, str]) -> set[str]:
    """The names of the fields that have a meaning, given the others' values."""
    family = values["family"]
    left = set(USUAL)
    if values["fine_tune"].strip():
        left -= {"family", "search", *TREE_FIELDS}
    else:
        members = members_of(family) or ()
        left -= set() if "network" in members else set(NETWORK_FIELDS)
        left -= set() if "trees" in members else set(TREE_FIELDS)
    if values["dataset"].strip():
        left -= {"query"}
    return left


def spec_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The options of `diode-engine train` for the fields' values, without those that have their
    default."""
    spec: dict[str, Any] = {}
    for name, value in values.items():
        if value == USUAL[name]:
            continue
        if name == "dataset":
            value = _path(value)
        spec[name] = True if name in ("all", "default") else value
    return spec


def _path(given: str) -> str:
    return str(Path(given).expanduser().absolute())


@dataclass(frozen=True)
class Part:
    """Timings of one GPU with one version of torch; a model is made from one such part."""

    gpu: str
    torch: str
    problems: int
    timings: int
    failed: int


@dataclass(frozen=True)
class TrainingData:
    """What a training would learn from: the largest part of the chosen GPU's timings, and what is
    left out. `chosen` is None where there is nothing, or a GPU must still be chosen."""

    gpus: tuple[str, ...]
    chosen: Part | None
    left_out: tuple[Part, ...]


@dataclass(frozen=True)
class TrainingPlan:
    """The data, the registered models, and the default hyper-parameters as texts by field; or
    sentences for the fields with mistakes."""

    data: TrainingData
    models: tuple[str, ...]
    known: Mapping[str, list[str]]  # values of fields that filter queries name
    usual: Mapping[str, str]
    mistakes: Mapping[str, str]


def planned(store: Store, values: Mapping[str, str]) -> TrainingPlan:
    """The plan for values that have no mistakes of their own. Needs no torch."""
    from diode_engine.models.manifest import check_name
    from diode_engine.store.run_query import known_values

    mistakes: dict[str, str] = {}
    parts: tuple[Part, ...] = ()
    if values["dataset"]:
        try:
            file = Path(_path(values["dataset"]))
            parts = _in_file(file, file.stat().st_mtime_ns)
        except OSError as error:
            mistakes["dataset"] = f"{error.filename}: {error.strerror}."
        except DiodeError as error:
            mistakes["dataset"] = str(error)
    else:
        try:
            parts = _in_store(store, values["query"])
        except QueryError as error:
            mistakes["query"] = str(error)
    source = "dataset" if values["dataset"] else "query"
    data = _chosen(parts, values["hardware"])
    if source not in mistakes:
        if not parts and values[source]:
            mistakes[source] = "There are no timings of such problems."
        elif not parts:
            mistakes[source] = (
                "There are no timings in the store yet: import those that come with Diode (i), or "
                "collect some (C)."
            )
        elif data.chosen is not None and data.chosen.problems < (least := _least()):
            mistakes[source] = (
                f"{data.chosen.problems:,} problems are too few to learn from and to judge by; it "
                f"takes {least} at least, and hundreds for a good model."
            )
    models, why = _base(values["fine_tune"], data.chosen)
    if why is not None:
        mistakes["fine_tune"] = why
    if values["name"]:
        try:
            check_name(values["name"])
        except DiodeError as error:
            mistakes["name"] = str(error)
    usual = _usual(tuned=bool(values["fine_tune"]))
    return TrainingPlan(data, models, known_values(store), usual, mistakes)


def _least() -> int:
    """The least number of problems: with fewer, a training fails, however they are split."""
    from diode_engine.training.fit import MIN_FITTED, MIN_WATCHED
    from diode_engine.training.training_split import MIN_HELD_OUT

    return MIN_FITTED + MIN_WATCHED + MIN_HELD_OUT


def _in_store(store: Store, query: str) -> tuple[Part, ...]:
    from diode_engine.store.problem_counts import statistics

    return tuple(
        Part(group.values[0], group.values[1], group.problems, group.timings, group.failed)
        for group in statistics(store, query, by=("gpu", "torch"))
    )


@lru_cache(maxsize=2)  # while a person changes other fields
def _in_file(path: Path, _changed: int) -> tuple[Part, ...]:
    import numpy as np

    from diode_engine.store.datasets.reading import read_dataset

    table: TimingTable = read_dataset(path)
    parts = []
    for i, environment in enumerate(table.environments):
        rows = table.environment == i
        parts.append(
            Part(
                environment.hardware.name, environment.torch,
                problems=len(np.unique(table.problem[rows])),
                timings=int(rows.sum()),
                failed=int((table.failure[rows] != 0).sum()),
            )
        )  # fmt: skip
    return tuple(part for part in parts if part.timings)


def _chosen(parts: tuple[Part, ...], gpu: str) -> TrainingData:
    gpus = tuple(dict.fromkeys(part.gpu for part in parts))
    if len(gpus) == 1:
        gpu = gpus[0]
    of_gpu = sorted((part for part in parts if part.gpu == gpu), key=lambda part: -part.timings)
    chosen = of_gpu[0] if of_gpu else None
    return TrainingData(gpus, chosen, tuple(part for part in parts if part is not chosen))


def _base(reference: str, data: Part | None) -> tuple[tuple[str, ...], str | None]:
    """The registered models, and what is wrong with the one to tune."""
    from diode_engine import registry

    models = tuple(dict.fromkeys(model.reference for model in registry.list_models()))
    if not reference:
        return models, None
    try:
        gpu = None if data is None else data.gpu
        gpus = registry.resolve_for(reference, gpu).manifest.gpu_names
    except DiodeError as error:
        return models, str(error)
    if data is not None and data.gpu not in gpus:
        made_for = " and ".join(gpus)
        return models, f"It was made for {made_for}; these timings are of {data.gpu}."
    return models, None


def _usual(*, tuned: bool) -> Mapping[str, str]:
    from diode_engine.training.settings import TrainingSettings

    settings = TrainingSettings()
    network, trees = settings.of(TUNED if tuned else "network"), settings.of("trees")
    hidden = ", ".join(map(str, network.hidden))
    return {
        "hidden": hidden,
        "layers": str(len(network.hidden)),
        "epochs": str(network.epochs),
        "batch_size": f"{network.problems * network.rows:,}",
        "learning_rate": str(network.learning_rate),
        "weight_decay": str(network.weight_decay),
        "patience": str(network.patience),
        "rounds": str(trees.rounds),
        "depth": str(trees.max_depth),
    }
