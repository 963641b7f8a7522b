"""The defaults of options that a user keeps in files (docs/commands.md, "Defaults of options").

They are read from `config.toml` in the user's configuration directory and then from `diode.toml` in
the current one, which comes first. An environment variable comes before both (DIODE_STORE,
DIODE_COLLECT_BUDGET, DIODE_DATA_PROBLEMS_ROWS), and what is given on the command line before all.

The current directory may be somebody else's, so its file does not say everything: see USER_ONLY.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import click

from diode_engine import paths
from diode_engine.cli import diagnostics
from diode_engine.documents import Malformed, read_toml, show
from diode_engine.location import is_url

ENVIRONMENT = "DIODE"  # the beginning of the variables
HERE = "diode.toml"

# Options of any command that the file in the current directory cannot set. Neither can it set a
# store on a server, because Diode would tell that server the user's name, and perhaps a password.
USER_ONLY = frozenset(
    {
        "host", "port", "public-url", "read-only",  # who can use the dashboard
        "output", "o", "figure", "html", "replace",  # which file is written or replaced
        "yes", "remove", "with-aliases",  # what is deleted
        "damaged",  # whether a damaged store is exported
        "default", "force", "index",  # which model is taken, and from where it is downloaded
        "ray",  # which machines are connected to: their answers are unpickled
        "train.model",  # which file is written (other commands read a model of this name)
    }
)  # fmt: skip


def read(command: str, commands: Container[str]) -> dict[str, Any]:
    """The settings in the files; those of the later file count. Settings that the current
    directory's file must not have are left out, with a warning if they are this command's. Raises
    UsageError where a file is malformed, and for a key that is neither one of the commands nor the
    store."""
    said: dict[str, Any] = {}
    for path in (paths.config_path(), Path(HERE)):
        try:
            given = read_toml(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:  # such as another user's home, in a container
            diagnostics.warn(f"{path} is left out, since it cannot be read: {error.strerror}.")
            continue
        except OSError as error:
            raise click.UsageError(f"{path} cannot be read: {error}.") from error
        except Malformed as error:
            raise click.UsageError(f"{path}: {error}") from None
        if unknown := [key for key in given if key != "store" and key not in commands]:
            raise click.UsageError(
                f"{path} has {show(unknown[0])}, which is neither a command nor the store."
            )
        if path == Path(HERE):
            if is_url(given.get("store")):
                del given["store"]
                _warn_of("store", f"as a URL in {HERE}")
            for name, table in given.items():
                _leave_out(table, name, warns=name == command)
        _merge(said, given)
    return said


def default_map(said: Mapping[str, Any], command: click.Command, name: str) -> dict[str, Any]:
    """The defaults of a command and its subcommands, from the environment and then the settings, in
    click's form: by the names that parameters have in Python. `said` has a table of the command,
    and the store of every command; `name` is the command's, with its parents'. Raises UsageError
    for what is not an option of it."""
    asked, store = said.get(name.split()[-1], {}), said.get("store")
    if not isinstance(asked, Mapping):
        raise click.UsageError(f"In the settings, [{name.replace(' ', '.')}] must be a table.")
    options = {
        spelling.lstrip("-"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for spelling in parameter.opts
    }
    children = command.commands if isinstance(command, click.Group) else {}
    defaults: dict[str, Any] = {
        child: default_map({**asked, "store": store}, children[child], f"{name} {child}")
        for child in children
    }
    if store is not None and "store" in options:
        defaults["store"] = _setting(store, options["store"], "store")
    for option, value in asked.items():
        if option in options:
            place = f"[{name.replace(' ', '.')}] {option}"
            defaults[str(options[option].name)] = _setting(value, options[option], place)
        elif option not in children:
            raise click.UsageError(
                f"In the settings, [{name.replace(' ', '.')}] has {show(option)}, which is not an "
                f"option of `diode-engine {name}`."
            )
    # click itself only knows variables named after the parameters' names in Python.
    for option, parameter in options.items():
        words = f"{ENVIRONMENT}_{name}_{option}"
        given = os.environ.get(words.replace(" ", "_").replace("-", "_").upper())
        if given and parameter.envvar is None:
            defaults[str(parameter.name)] = _value(given, parameter)
    return defaults


def _leave_out(table: Any, name: str, *, warns: bool) -> None:
    """Removes the settings that only the user's own file may have from the tables of a command and
    its subcommands."""
    if not isinstance(table, MutableMapping):
        return
    for key in list(table):
        if isinstance(table[key], Mapping):
            _leave_out(table[key], f"{name}.{key}", warns=warns)
        elif is_users_only(key, name) or (key == "store" and is_url(table[key])):
            del table[key]
            if warns:
                _warn_of(key, f"of [{name}] in {HERE}")


def is_users_only(option: str, command: str) -> bool:
    """Whether only the user's own file may set this option of the command."""
    return not USER_ONLY.isdisjoint((option, f"{command}.{option}"))


def _warn_of(key: str, place: str) -> None:
    diagnostics.warn(
        f"{key} {place} is ignored: a directory's file cannot set it. "
        f"{paths.config_path()}, the environment and the command line can."
    )


def _setting(value: Any, option: click.Option, place: str) -> Any:
    """The value of an option in a file, in click's form. Raises UsageError where it has a type that
    no option has."""
    many = option.multiple or option.nargs != 1
    values = value if many and isinstance(value, list) else [value]
    flag = option.is_flag
    if any(
        not isinstance(one, str | int | float) or (isinstance(one, bool) and not flag)
        for one in values
    ):
        wanted = "true or false" if flag else "a text or a number"
        more = ", or a list of these" if many else ""
        raise click.UsageError(
            f"In the settings, {place} is {show(value)}; it must be {wanted}{more}."
        )
    texts = [one if isinstance(one, bool) else str(one) for one in values]
    return texts if values is value else texts[0]


def _value(given: str, option: click.Option) -> Any:
    """The value of an option in an environment variable."""
    if option.multiple:
        return option.type.split_envvar_value(given)
    if option.is_flag and not option.is_bool_flag:  # such as --json and --csv, of one parameter
        return option.flag_value
    return given


def _merge(into: MutableMapping[str, Any], given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), MutableMapping):
            _merge(into[key], value)
        else:
            into[key] = value
