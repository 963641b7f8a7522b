"""The user's settings: a TOML file, one typed model, a sentence for each field."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from diode_app.data.problem_columns import PROBLEM_COLUMNS
from diode_app.data.run_columns import RUN_COLUMNS
from diode_app.themes import DEFAULT, NAMES
from diode_engine.atomic import write_whole
from diode_engine.documents import Malformed, read_toml, shortened
from diode_engine.errors import DiodeError

FILTERED = ("runs", "data", "sql")  # the places that take a query
BELL, NOTIFICATION = "bell", "notification"
WAYS = (BELL, NOTIFICATION, "nothing")  # how the end of a run is told
COLUMNS = {
    "run_columns": tuple(column.key for column in RUN_COLUMNS),
    "problem_columns": tuple(column.key for column in PROBLEM_COLUMNS),
}


class SettingsError(DiodeError):
    """The settings file holds something that is not valid."""


def _described(label: str, sentence: str, **options: Any) -> Any:
    """Return a field; `form` is how its value is written on one line, `names` are its values."""
    more = {name: options.pop(name, ()) for name in ("names", "form")}
    return field(metadata={"label": label, "sentence": sentence, **more}, **options)


def _columns(label: str, what: str, name: str) -> Any:
    sentence = f"The columns of {what}, in this order: some of {', '.join(COLUMNS[name])}."
    return _described(label, sentence, default=COLUMNS[name])


@dataclass(frozen=True)
class Settings:
    """What a user can set. Raises SettingsError for an invalid value."""

    theme: str = _described(
        "Theme", f"The colours: one of {', '.join(NAMES)}.", names=NAMES, default=DEFAULT
    )
    rows: int = _described("Rows", "Rows on a page of a table, from 10 to 500.", default=100)
    run_columns: tuple[str, ...] = _columns(
        "Columns of the runs", "the list of runs", "run_columns"
    )
    problem_columns: tuple[str, ...] = _columns(
        "Columns of the problems", "the problems", "problem_columns"
    )
    tell: str = _described(
        "End of a run",
        "How you are told that a run has ended, besides a line on the screen: by a bell, by the "
        "terminal's own notification (OSC 9), or not at all.",
        names=WAYS,
        default=BELL,
    )
    keys: Mapping[str, str] = _described(
        "Keys",
        'Other keys for actions, by the names that the help shows, such as "runs.cancel" = "x".',
        form="a name, = and a key, such as runs.cancel=x",
        default_factory=dict,
    )
    filters: Mapping[str, str] = _described(
        "Saved filters",
        'Saved filters by name, each after the place whose list it is of, such as "tall" = "data '
        'op:bmm m>4096"; : finds them.',
        form=f"a name, =, a place ({', '.join(FILTERED)}) and a query, in quotation marks, such as "
        "'tall=data op:bmm m>4096'",
        default_factory=dict,
    )

    def __post_init__(self) -> None:
        if self.theme not in NAMES:
            raise SettingsError(f"There is no theme {self.theme!r}; there are {', '.join(NAMES)}.")
        if self.tell not in WAYS:
            raise SettingsError(f"tell is {self.tell!r}; it must be one of {', '.join(WAYS)}.")
        whole = isinstance(self.rows, int) and not isinstance(self.rows, bool)
        if not whole or not 10 <= self.rows <= 500:
            raise SettingsError(f"rows is {self.rows!r}; it must be a whole number from 10 to 500.")
        for name, columns in COLUMNS.items():
            chosen = getattr(self, name)
            if not chosen or not set(chosen) <= set(columns):
                raise SettingsError(
                    f"{name} is {list(chosen)!r}; it must be some of {', '.join(columns)}."
                )
        for name, key in self.keys.items():
            if not isinstance(key, str) or not key:
                raise SettingsError(f"The key of {name} is {key!r}; it must be a text.")
        for name, query in self.filters.items():
            if not isinstance(query, str) or query.partition(" ")[0] not in FILTERED:
                raise SettingsError(
                    f"The filter {name} is {query!r}; it must be a place, {' or '.join(FILTERED)}, "
                    "and a query."
                )


def write_value(value: object) -> str:
    """Return a setting's value on one line."""
    if isinstance(value, Mapping):
        return shlex.join(f"{name}={each}" for name, each in value.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)


def read_value(name: str, given: str) -> Any:
    """Return the inverse of `write_value` for the setting of this name. Raises SettingsError."""
    if name in COLUMNS:
        return tuple(given.split())
    if name == "rows":
        return int(given) if given.isdecimal() else given
    form = next(f.metadata["form"] for f in fields(Settings) if f.name == name)
    if not form:
        return given
    try:
        words = shlex.split(given)
    except ValueError:  # a quotation mark that is not closed, or is itself a key
        words = [given]
    values = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not (key and sign and value):
            raise SettingsError(f"{word} is not {form}.")
        values[key] = value
    return values


def load(path: Path) -> Settings:
    """Return the settings in the file; the defaults where there is none. Raises SettingsError,
    which names the file, where it cannot be read or is not valid."""
    try:
        given = read_toml(path)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise SettingsError(f"The settings {path} cannot be read: {error}.") from error
    except Malformed as error:
        raise SettingsError(f"The settings {path} cannot be read: {error}") from None
    known = {f.name for f in fields(Settings)}
    if unknown := sorted(set(given) - known):
        raise SettingsError(
            f"The settings {path} have unknown names: {shortened(', '.join(unknown))}; there are "
            f"{', '.join(sorted(known))}."
        )
    try:
        given.update((name, tuple(given[name])) for name in COLUMNS if name in given)
        for name, of in (("keys", "names and keys"), ("filters", "names and queries")):
            if not isinstance(given.get(name, {}), dict):
                raise SettingsError(f"{name} must be a table of {of}.")
        return replace(Settings(), **given)
    except (SettingsError, TypeError) as error:
        raise SettingsError(
            f"The settings {path} are not right: {shortened(str(error))}"
        ) from error


def save(path: Path, settings: Settings) -> None:
    """Write the file, whole or not at all, with a sentence above each field; what the user wrote
    besides stays. Raises SettingsError where it cannot be written."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    document = tomlkit.document()
    with suppress(OSError, ValueError, Malformed, TOMLKitError):  # none yet, or not to be read
        read_toml(path)
        document = tomlkit.parse(path.read_text(encoding="utf-8"))
    for item in fields(Settings):
        value = getattr(settings, item.name)
        value = list(value) if isinstance(value, tuple) else value
        value = dict(value) if isinstance(value, Mapping) else value
        if item.name not in document and not isinstance(value, dict):
            document.add(tomlkit.comment(item.metadata["sentence"]))
        if isinstance(value, dict) and not value:
            document.pop(item.name, None)
            continue
        document[item.name] = value
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, tomlkit.dumps(document))
    except OSError as error:
        raise SettingsError(f"The settings {path} cannot be written: {error.strerror}.") from error
