"""Where a store is: a file, or a database on a PostgreSQL server.

The URL of a server may have a password in it. From then on the password is kept apart from the URL,
so that it never gets into a message, a log, a run or the list of processes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from diode_engine.errors import StoreError

SCHEME = "postgresql+psycopg"
FORM = f"{SCHEME}://USER@HOST:PORT/DATABASE"

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(r"[A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]")
_SECRET = re.compile("passw(or)?d|secret", re.IGNORECASE)
_PASSWORD = re.compile(rf"({re.escape(SCHEME)}://[^\s/@:]*):\S*@")


@dataclass(frozen=True)
class ServerUrl:
    """A database on a server. str() gives the URL without the password; two records that differ in
    the password alone are equal. For what is None or empty, libpq looks elsewhere (PGHOST, PGUSER,
    PGPASSWORD, the file ~/.pgpass, ...). `options` are those of a libpq connection string."""

    host: str
    port: int | None
    database: str
    user: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    password: str | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The database at a URL. Raises StoreError where the URL is malformed. The error does not
        quote the URL, since in a malformed one the password may be anywhere."""
        known = _URL.match(text)
        if known is not None and known[1].lower() != SCHEME:
            raise StoreError(f"A store cannot be at a URL of {known[1]}: it is a file, or {FORM}.")
        malformed = StoreError(
            f"The URL of the store is malformed: it must be {FORM}, and in its parts a character "
            "such as @, :, /, ? or # must be written as %40, %3A, %2F, %3F or %23."
        )
        try:
            parts = urlsplit(text)
            user, _, host = parts.netloc.rpartition("@")
            name, colon, password = user.partition(":")
            database = unquote(parts.path.removeprefix("/"), errors="strict")
            options = tuple(parse_qsl(parts.query, strict_parsing=True) if parts.query else ())
            port = parts.port
        except ValueError:
            raise malformed from None
        host = host.removesuffix("" if port is None else f":{port}").removesuffix(":")
        if (
            known is None or not database or "/" in database or "@" in name + password
            or parts.fragment or "#" in text or "@" in parts.path or not _HOST.fullmatch(host)
        ):  # fmt: skip
            raise malformed
        if secret := next((name for name, _ in options if _SECRET.search(name)), None):
            raise StoreError(
                f"The URL of the store has {secret} after its question mark, where it would be "
                "shown: put it into a service file of libpq (PGSERVICEFILE), or a password into "
                "~/.pgpass or PGPASSWORD."
            )
        return cls(
            host.strip("[]"), port, database, unquote(name) or None, options,
            unquote(password) if colon else None,
        )  # fmt: skip

    def __str__(self) -> str:
        user = "" if self.user is None else f"{quote(self.user, safe='')}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        query = f"?{urlencode(self.options, safe='/')}" if self.options else ""
        return f"{SCHEME}://{user}{host}{port}/{quote(self.database, safe='')}{query}"

    @property
    def name(self) -> str:
        """The name that is shown to people."""
        return self.database

    def absolute(self) -> Self:
        """Itself: it is the same from every folder."""
        return self

    def environment(self) -> dict[str, str]:
        """The environment variables that a child process needs besides the text."""
        return {} if self.password is None else {"PGPASSWORD": self.password}


Location = Path | ServerUrl


def is_url(given: object) -> bool:
    """Whether this is a text with a scheme before ://."""
    return isinstance(given, str) and _URL.match(given) is not None


def location_of(given: str | os.PathLike[str] | ServerUrl) -> Location:
    """The location that a text names: a URL (see `is_url`), else the path of a file. Raises
    StoreError for a URL that cannot be a store's."""
    if isinstance(given, ServerUrl):
        return given
    if isinstance(given, str) and is_url(given):
        return ServerUrl.parse(given)
    return Path(given)


def child_environment(location: Location) -> dict[str, str]:
    """The environment variables that a process needs when it is given this location as a text."""
    return location.environment() if isinstance(location, ServerUrl) else {}


def without_passwords(text: str) -> str:
    """The text with the part between the user and the host removed from every URL of a store."""
    return _PASSWORD.sub(r"\1@", text)
