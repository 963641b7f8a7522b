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


@functools.cache
def missing(source: str) -> str:
    """Why no model of a library can be built here: it cannot be imported. Empty where it can."""
    if source == "written":
        return ""
    try:
        importlib.import_module(source)
    except Exception as error:  # noqa: BLE001  # a torchvision of another torch raises anything
        return f"{source} cannot be imported, {type(error).__name__}: {error}"
    return ""
