"""What may change about models: their aliases, status, tags and notes, and the history of these
changes.

One document for each hardware, apart from the versions' folders, which never change:

    <user's models>/<hardware slug>/registry.json

It has a `format` and `version`, and the fields of Document. It may have entries for models that
Diode ships, too. A change replaces the whole file, under a lock, so a reader sees the state before
the change or the one after it.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from diode_engine.atomic import write_whole
from diode_engine.core.checks import decode_fields
from diode_engine.documents import Limits, Malformed, check_format, read_json, shortened
from diode_engine.errors import RecordError, RegistryError, explain_os_error
from diode_engine.registry.sources import user_source

FORMAT = "diode-registry"
VERSION = 1
FILE = "registry.json"
_LOCK = ".lock"
_LIMITS = Limits(bytes=16 << 20)  # 100,000 changes of an alias or status


class ModelStatus(StrEnum):
    """What Diode has found out about a model on this machine."""

    DRAFT = "draft"  # registered; the gate has not judged it
    VALIDATED = "validated"  # it passed the gate
    REJECTED = "rejected"  # the gate refused it
    RETIRED = "retired"  # it was the default and was rolled back


# A model with one of these is not taken unless an alias names it.
SET_ASIDE = (ModelStatus.REJECTED, ModelStatus.RETIRED)


class HistoryAction(StrEnum):
    """What a line of the history tells."""

    ALIAS = "alias"
    PROMOTE = "promote"
    ROLLBACK = "rollback"
    UNALIAS = "unalias"
    REMOVE = "remove"


@dataclass(frozen=True)
class Event:
    """One line of the history. `before` and `model` are the references that the alias named before
    and after the change, None for no alias. For the removal of a model, `model` is its
    reference."""

    event: HistoryAction
    model: str | None
    alias: str | None = None
    before: str | None = None
    reason: str = ""
    forced: bool = False
    at: str = field(  # UTC, ISO 8601
        default_factory=lambda: dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    )

    def describe(self) -> str:
        """Return what was done, in words."""
        parts = [
            str(self.event), self.alias, self.before and f"from {self.before}",
            self.model and f"to {self.model}", "forced" if self.forced else "",
            f"({self.reason})" if self.reason else "",
        ]  # fmt: skip
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class ModelFacts:
    """What may change about one model. `status` is None where it was not set on this machine (see
    versions.status_of); `gate` is the last verdict on it (validation.gate.GateVerdict.to_dict);
    `origin` says where it was imported from."""

    status: ModelStatus | None = None
    tags: tuple[str, ...] = ()
    note: str = ""
    gate: Mapping[str, Any] | None = None
    origin: Mapping[str, Any] | None = None


@dataclass
class Document:
    """All that may change, for one hardware; models are named by their references."""

    aliases: dict[str, str] = field(default_factory=dict)
    models: dict[str, ModelFacts] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)

    def find(self, reference: str) -> ModelFacts:
        """What is known of this model."""
        return self.models.get(reference, ModelFacts())

    def to_dict(self) -> dict[str, Any]:
        """As registry.json has it; models of which nothing is known are left out."""
        models = {
            reference: {k: v for k, v in asdict(facts).items() if v}
            for reference, facts in self.models.items()
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            "aliases": self.aliases,
            "models": {reference: facts for reference, facts in models.items() if facts},
            "history": [asdict(event) for event in self.history],
        }


def read(slug: str) -> Document:
    """What the user's registry says of this hardware; empty where it says nothing. Raises
    RegistryError where its file is broken or too new."""
    path = user_source().root / slug / FILE
    try:
        given = read_json(path, _LIMITS)
        check_format(given, FORMAT, VERSION)
        document: Document = decode_fields(Document, given)
        return document
    except (FileNotFoundError, NotADirectoryError):  # the second with HOME=/dev/null
        return Document()
    except OSError as error:
        raise RegistryError(f"{path} cannot be read: {error.strerror}.") from None
    except (Malformed, RecordError) as error:
        raise RegistryError(
            f"{path}, which has the aliases and notes of your models, is broken, or of a newer "
            f"Diode ({shortened(str(error).rstrip('.'))}): repair it, or move it away to begin "
            "without any. The models are not touched by that."
        ) from None


@contextmanager
def changing(slug: str) -> Iterator[Document]:
    """The document, which the block may change. It is written when the block ends, unless the block
    raises. Other processes that want to change it wait. Raises RegistryError as `read` does, and
    where the document cannot be written."""
    folder = user_source().root / slug
    writes = partial(explain_os_error, RegistryError, f"The registry {folder} cannot be written")
    with writes():
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released by the system if this process dies
        document = read(slug)
        yield document
        made = document.to_dict()
        text = json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        with writes():
            write_whole(folder / FILE, text)
    finally:
        os.close(lock)
