"""An index of models that can be imported: a JSON file that somebody has written
(docs/registry.md has one).

`archive` is a path, from the index's folder, or an https address. A model of the index is used only
after it was imported; its hash must be the one in the index. A downloaded archive is kept under its
hash, so that it is downloaded once.
"""

from __future__ import annotations

import hashlib
import re
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from diode_engine import paths
from diode_engine.atomic import whole_file
from diode_engine.core.checks import decode, decode_fields
from diode_engine.core.hardware import find_name, slug_of
from diode_engine.documents import Limits, Malformed, check_format, read_document, shortened
from diode_engine.errors import DiodeError, ModelError, NoSuchModelError, RecordError, RegistryError
from diode_engine.models.archive import MAX_ARCHIVE, read_content
from diode_engine.models.manifest import check_name
from diode_engine.registry.archive import SUFFIX, import_model
from diode_engine.registry.sources import ModelVersion

FORMAT = "diode-model-index"
VERSION = 1
_CHUNK = 1 << 20
_SECONDS = 30.0  # a download is given up when nothing has arrived for so long
_LOCAL = ("localhost", "127.0.0.1", "::1")  # http is allowed: nobody can change what is sent

Progress = Callable[[int, int], None]
_LIMITS = Limits(16 << 20)  # 60,000 models


@dataclass(frozen=True)
class IndexLine:
    """One model in an index. `hardware` is a slug; `about` is a text for people."""

    name: str
    version: int
    hardware: str
    archive: str  # an absolute path or an address
    sha256: str
    bytes: int
    about: str = ""

    @property
    def reference(self) -> str:
        """name@version."""
        return f"{self.name}@{self.version}"


def read_index(file: Path) -> tuple[IndexLine, ...]:
    """The models of an index, in its order. Raises RegistryError where it cannot be read, is too
    new, or a line is malformed or offers the same as another line."""
    given = read_document(file, _LIMITS, RegistryError)
    try:
        check_format(given, FORMAT, VERSION)
        models = decode(list[dict[str, Any]], given.get("models"))
    except (Malformed, RecordError) as error:
        raise RegistryError(f"{file} is not an index of models. {error}") from None
    offers: dict[tuple[str, str], IndexLine] = {}
    for place, line in enumerate(models, 1):
        try:
            offer = _offer(line, file)
            if (offer.reference, offer.hardware) in offers:
                raise ValueError(f"{offer.reference} for {offer.hardware} is listed twice")
            offers[offer.reference, offer.hardware] = offer
        except (DiodeError, ValueError) as error:
            why = shortened(str(error).rstrip("."))
            raise RegistryError(f"Model {place} of the index {file}: {why}.") from None
    return tuple(offers.values())


def _offer(line: Mapping[str, Any], file: Path) -> IndexLine:
    offer: IndexLine = decode_fields(IndexLine, line)
    check_name(offer.name)
    if not re.fullmatch(r"[0-9a-f]{64}", offer.sha256):
        raise ValueError("sha256 is not a hash")
    if not 0 < offer.bytes <= MAX_ARCHIVE or offer.version < 0:
        raise ValueError("bytes or version is impossible")
    archive = offer.archive
    if "://" not in archive:
        archive = str(file.absolute().parent / archive)
    else:
        address = urlsplit(archive)
        local = address.scheme == "http" and address.hostname in _LOCAL
        if address.scheme != "https" and not local:
            raise ValueError(f"{archive} is not an https address")
    return replace(offer, hardware=slug_of(offer.hardware), archive=archive)


def offered(
    offers: tuple[IndexLine, ...], reference: str, hardware: str | None = None
) -> IndexLine:
    """The model that is meant: "name@version", or "name" (the newest), for this hardware (a name or
    slug) where one is given. Raises NoSuchModelError where there is none, RegistryError where there
    are several."""
    name, _, version = reference.partition("@")
    found = [o for o in offers if o.name == name and (not version or str(o.version) == version)]
    if hardware is not None:
        meant = find_name(hardware, {o.hardware for o in found})
        found = [o for o in found if o.hardware == meant]
    if not version and found:
        newest = max(o.version for o in found)
        found = [o for o in found if o.version == newest]
    if not found:
        known = ", ".join(f"{o.reference} for {o.hardware}" for o in offers) or "nothing"
        raise NoSuchModelError(f"The index has no {reference}; it has: {shortened(known)}.")
    if len(found) > 1:
        known = shortened(", ".join(o.hardware for o in found))
        raise RegistryError(f"{reference} is there for {known}; say for which hardware it is.")
    return found[0]


def import_offer(
    offer: IndexLine, name: str | None = None, *, report: Progress = lambda done, total: None
) -> tuple[ModelVersion, bool]:
    """Downloads the model and registers it as `archive.import_model` does. `report` is called with
    the number of bytes so far and the number of all bytes. Raises what `import_model` raises, and
    ModelError where the archive cannot be downloaded."""
    path = _download(offer, report) if "://" in offer.archive else Path(offer.archive)
    return import_model(path, name or offer.name, sha256=offer.sha256, where=offer.archive)


def _download(offer: IndexLine, report: Progress) -> Path:
    """The archive in the folder of downloads; it is downloaded unless it is there."""
    kept = paths.data_dir() / "downloads" / f"{offer.sha256}{SUFFIX}"
    if kept.is_file() and hashlib.sha256(read_content(kept)).hexdigest() == offer.sha256:
        return kept
    request = urllib.request.Request(offer.archive, headers={"User-Agent": "diode-engine"})
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with (
            whole_file(kept) as file,
            urllib.request.urlopen(request, timeout=_SECONDS) as answer,
        ):
            done, digest = 0, hashlib.sha256()
            while chunk := answer.read(_CHUNK):
                done += len(chunk)
                if done > offer.bytes:
                    raise ModelError(
                        f"{offer.archive} is longer than the {offer.bytes} bytes that the "
                        "index says."
                    )
                file.write(chunk)
                digest.update(chunk)
                report(done, offer.bytes)
            if digest.hexdigest() != offer.sha256:
                raise ModelError(
                    f"What {offer.archive} sends is not what the index promises: its hash differs."
                )
    except (OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise ModelError(f"{offer.archive} cannot be downloaded: {why}.") from None
    return kept
