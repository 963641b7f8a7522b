"""The models of the zoo (`python benchmarks/zoo.py`): published sizes, random weights, few layers.

A record says how a model is built and compiled; building imports its library, so that records of
libraries that are not installed can still be listed.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Iterable, Iterator

from zoo_models import eight_bit, experts, libraries, science, written
from zoo_models.record import Model


def _by_turns(models: Iterable[Model]) -> Iterator[Model]:
    """One of each group after the other, so that what a time limit cuts off is not one kind."""
    groups: dict[str, list[Model]] = {}
    for model in models:
        groups.setdefault(model.group, []).append(model)
    for several in itertools.zip_longest(*groups.values()):
        yield from filter(None, several)


_PARTS = (libraries, written, science, experts, eight_bit)
ZOO: dict[str, Model] = {
    model.name: model for model in _by_turns(model for part in _PARTS for model in part.MODELS)
}

__all__ = ["ZOO", "Model", "missing"]


def missing(model: Model) -> str:
    """Why the model cannot be built here: its library cannot be imported. Empty where it can."""
    return "" if model.source == "written" else _not_imported(model.source)


@functools.cache
def _not_imported(library: str) -> str:
    try:
        importlib.import_module(library)
    except Exception as error:  # noqa: BLE001  # a torchvision of another torch raises anything
        return f"{library} cannot be imported, {type(error).__name__}: {error}"
    return ""
