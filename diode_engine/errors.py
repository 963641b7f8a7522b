"""Every error that Diode raises on purpose.

Each message is a sentence that says what is wrong and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DiodeError(Exception):
    """The root of the tree: catch this to catch everything Diode raises on purpose."""


class NothingError(DiodeError):
    """What was named does not exist, or there is nothing to do: a command exits with 3."""


class RecordError(DiodeError, ValueError):
    """A record was given a value that it cannot have."""


class DatasetError(DiodeError):
    """A dataset file is malformed, truncated or of a version that this Diode cannot read."""


class NoSuchDatasetError(DatasetError, NothingError):
    """There is no file at the path."""


class StoreError(DiodeError):
    """The store cannot be opened, migrated, read or written."""


class StoreMissingError(StoreError, NothingError):
    """There is no store at the path."""


class NoSuchRunError(StoreError, NothingError):
    """The store has no run of this number."""


class StoreLockedError(StoreError):
    """Another process kept the store locked; trying again later may work."""


class SchemaTooOldError(StoreError):
    """The store was written by an older Diode, and opening it for reading does not migrate it."""


class SchemaTooNewError(StoreError):
    """The store was written by a newer Diode."""


class QueryError(DiodeError):
    """A filter query has a mistake, at the characters from `start` to `end`."""

    def __init__(self, sentence: str, start: int, end: int) -> None:
        super().__init__(sentence)
        self.start = start
        self.end = end


class ModelError(DiodeError):
    """A model artifact is missing, corrupt, not Diode's or too new."""


class RegistryError(DiodeError):
    """A name in the registry is ambiguous or impossible, or the registry cannot be changed."""


class NoSuchModelError(RegistryError, NothingError):
    """The registry has no such model, version or alias."""


class SeveralModelsError(RegistryError):
    """A name stands for several models, each of another GPU; `slugs` are the GPUs' (see
    `Hardware.slug`)."""

    def __init__(self, message: str, slugs: tuple[str, ...]) -> None:
        super().__init__(message)
        self.slugs = slugs


class CollectionError(DiodeError):
    """A collection cannot start or cannot go on."""


class RunError(DiodeError):
    """A run cannot be started, cancelled or resumed."""


class RunOverError(RunError, NothingError):
    """A run has ended, so there is nothing to cancel or to go on with."""


class TrainingError(DiodeError):
    """The timings at hand cannot train or validate a model."""


class NoTimingsError(TrainingError, NothingError):
    """There are no timings of the GPU that was named."""


class ReportError(DiodeError):
    """A report, of a validation or of a program, is not as Diode writes it, was written by a newer
    Diode, or cannot be read or written."""


class FrozenChoicesError(DiodeError):
    """A file of frozen choices cannot be used, or a compile would differ from it."""


class IntegrationError(DiodeError):
    """Diode's choices cannot be installed in this torch."""


@contextmanager
def explain_os_error(kind: Callable[[str], Exception], what: str) -> Iterator[None]:
    """Turn an OSError of the block into an error of this kind, whose sentence begins with `what`:
    "/a/b.db cannot be written"."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}.") from error


# The extra of diode-engine that brings a package; what a compile needs comes without one.
_EXTRAS = {
    **dict.fromkeys(("click", "rich", "sqlalchemy", "alembic", "msgpack", "zstandard"), "store"),
    **dict.fromkeys(("xgboost", "optuna", "scipy"), "train"),
    **dict.fromkeys(("textual", "textual_plotext", "tomlkit"), "app"),
    **dict.fromkeys(("aiohttp", "textual_serve"), "serve"),
}


def explain_missing_package(error: ModuleNotFoundError, what: str) -> str | None:
    """Return a sentence that says how to install what `what` (a task, such as "The command train")
    needs and does not find; None where the module is not of an extra of diode-engine."""
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRAS:
        return None
    install = f"pip install 'diode-engine[{_EXTRAS[name]}]'"
    return f"{what} needs the package {name}, which is not installed. Run: {install}"
