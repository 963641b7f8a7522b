"""Where registered models come from, and which there are.

Every source is a folder of the same form,

    <root>/<hardware slug>/<name>/<version>/manifest.json
    <root>/<hardware slug>/aliases.json                    {"default": "<name>@<version>"}

A model of several GPUs lies in the folder of one of them. An alias of another of its GPUs names it
with this folder, as in "<hardware slug>/<name>@<version>".

There are three kinds: the user's own, what Diode ships, and data packages that were installed
with pip. Such a package has an entry point of the group `diode_engine.models` that names it. It is
found without being imported, so that none of its code runs. The user's own aliases are not in an
aliases.json: they are among the facts (see facts.py).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path

from diode_engine import paths
from diode_engine.core.hardware import Hardware, find_name, slug_of
from diode_engine.errors import ModelError
from diode_engine.models.artifact import load_manifest
from diode_engine.models.manifest import MANIFEST, Manifest

log = logging.getLogger(__name__)

ENTRY_POINTS = "diode_engine.models"


class Kind(StrEnum):
    """Whose models a source has, in the order in which its aliases count."""

    USER = "user"
    SHIPPED = "shipped"
    PACKAGE = "package"


@dataclass(frozen=True)
class ModelSource:
    """A folder of models; `label` is its name for people."""

    kind: Kind
    root: Path
    label: str


@dataclass(frozen=True)
class ModelVersion:
    """One registered model. With `source` None and version 0, it is a model that is not registered,
    and `folder` may be its file (see models.archive)."""

    name: str
    version: int
    folder: Path
    source: ModelSource | None
    slug: str  # of the hardware

    @cached_property
    def manifest(self) -> Manifest:
        """The model's manifest, read when it is first asked for. Raises ModelError where it is
        missing, malformed, too new, or not a manifest of Diode's."""
        return load_manifest(self.folder)

    @property
    def reference(self) -> str:
        """name@version, which `resolve` accepts for a registered model."""
        return f"{self.name}@{self.version}"

    @property
    def slugs(self) -> tuple[str, ...]:
        """The hardware that it has a record of, by slugs, that of its folder first; that one alone
        where its manifest cannot be read."""
        try:
            records = self.manifest.records
        except ModelError:
            return (self.slug,)
        return tuple(dict.fromkeys((self.slug, *(record.hardware.slug for record in records))))

    def reference_on(self, slug: str) -> str:
        """What an alias of this hardware calls it: its reference, with the folder's hardware before
        it where that is another one."""
        return self.reference if slug == self.slug else f"{self.slug}/{self.reference}"

    def slug_named(self, hardware: str | None) -> str:
        """The slug of the model's GPU that a person means by this name; without one, the slug of
        the model's folder."""
        if hardware is None:
            return self.slug
        return find_name(hardware, self.slugs) or slug_of(hardware)

    @property
    def own(self) -> bool:
        """Whether it is in the user's registry, so that Diode may remove it."""
        return self.source is not None and self.source.kind is Kind.USER

    @property
    def shipped(self) -> bool:
        """Whether it came with Diode."""
        return self.source is not None and self.source.kind is Kind.SHIPPED


def user_source() -> ModelSource:
    """The user's registry, which need not exist yet."""
    return ModelSource(Kind.USER, paths.data_dir() / "models", "yours")


def sources() -> tuple[ModelSource, ...]:
    """The user's models, those that Diode ships, and those of installed packages by their
    names; in the order in which their aliases count."""
    shipped = ModelSource(Kind.SHIPPED, paths.shipped_dir() / "trained_models", "shipped")
    return (user_source(), shipped, *_packages(tuple(sys.path)))


@cache  # it reads the metadata of everything that is installed
def _packages(_path: tuple[str, ...]) -> tuple[ModelSource, ...]:
    found = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        # A parent of a dotted name would be imported, and its code run, to find the module.
        try:
            spec = None if "." in point.module else importlib.util.find_spec(point.module)
        except (ImportError, ValueError):
            spec = None
        if spec is None or not spec.submodule_search_locations:
            log.warning(
                "The entry point %s of %s names no package of models: %s is not an installed "
                "package at the top level.",
                point.name, ENTRY_POINTS, point.value,
            )  # fmt: skip
            continue
        label = point.module if point.dist is None else f"{point.dist.name} {point.dist.version}"
        for location in spec.submodule_search_locations:
            found[Path(location)] = ModelSource(Kind.PACKAGE, Path(location), label)
    return tuple(sorted(found.values(), key=lambda source: (source.label, source.root)))


def list_models() -> list[ModelVersion]:
    """Every registered model, by hardware, name, version and source. Their manifests are not
    read."""
    order = sources()
    found = [(place, model) for place, source in enumerate(order) for model in _scan(source)]
    found.sort(key=lambda entry: (entry[1].slug, entry[1].name, entry[1].version, entry[0]))
    return [model for _, model in found]


def gpus_of_models(
    tell: Callable[[ModelVersion, ModelError], object] = lambda model, error: None,
) -> dict[str, Hardware]:
    """The GPUs that registered models have a record of, by name. `tell` is called with each model
    whose manifest cannot be read."""
    found: dict[str, Hardware] = {}
    for model in list_models():
        try:
            found.update(
                {record.hardware.name: record.hardware for record in model.manifest.records}
            )
        except ModelError as error:
            tell(model, error)
    return found


def list_gpus(models: Iterable[ModelVersion]) -> list[str]:
    """The slugs of all hardware that these models have a record of, sorted."""
    return sorted({slug for model in models for slug in model.slugs})


def _scan(source: ModelSource) -> Iterator[ModelVersion]:
    try:
        manifests = list(source.root.glob(f"*/*/*/{MANIFEST}"))
    except PermissionError as error:  # such as another user's home, in a container
        log.warning("The models in %s are left out: %s.", source.root, error.strerror)
        return
    for manifest in manifests:
        folder = manifest.parent
        if _is_number(folder.name) and not folder.is_symlink():
            slug, name = folder.parent.parent.name, folder.parent.name
            yield ModelVersion(name, int(folder.name), folder, source, slug)


def _is_number(name: str) -> bool:
    """Whether a folder's name is a version: 7, but not 007, nor digits of another script."""
    return name.isascii() and name.isdigit() and len(name) < 10 and str(int(name)) == name
