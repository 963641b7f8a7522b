"""The form of a command, made from the declarations of the command's options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from diode_app.widgets.files import complete_path
from diode_app.widgets.filter_box import Suggest
from diode_app.widgets.form import Check, ChoiceField, Field, FieldRows
from diode_engine.cli.group import COMMANDS
from diode_engine.cli.options import Option


def form_options(command: str) -> dict[str, Option]:
    """Return the options of a diode-engine command that its form has fields for, by their keys."""
    params = COMMANDS[command].load(command).params
    shown = [each for each in params if isinstance(each, Option) and each.heading]
    headings = list(dict.fromkeys(each.heading for each in shown))
    return {each.key: each for each in sorted(shown, key=lambda o: headings.index(o.heading))}


def _is_tick(option: Option) -> bool:
    """Return whether the option is a flag that is given or not, such as --direct."""
    return option.is_flag and not option.secondary_opts


def choices_of(option: Option) -> tuple[str, ...]:
    """Return the names that the option's field offers; none where it takes any text."""
    if _is_tick(option):
        return ("yes",)
    if option.is_flag:
        return tuple(each.removeprefix("--") for each in (*option.opts, *option.secondary_opts))
    names = tuple(option.names or getattr(option.type, "choices", ()))
    has_default = option.names or option.usual or option.default_text in names
    return names if has_default or not names else (option.default_text, *names)


def first_value(option: Option) -> str:
    """Return the text in the option's field where the option has its default."""
    if option.names:
        return ",".join(option.names)
    if option.is_flag:
        return choices_of(option)[0] if option.secondary_opts else ""
    return option.usual or (option.default_text if choices_of(option) else "")


def read_value(option: Option, value: str) -> Any:
    """Return the option's value for `runs.command_line`, or None for its default. Raises ValueError
    where the quotes in the text do not match."""
    if value in ("", first_value(option), option.default_text):
        return None
    if option.is_flag:
        return True
    words = shlex.split(value) if option.multiple else [value]
    if isinstance(option.type, click.Path):
        words = [str(Path(word).expanduser().absolute()) for word in words]
    return words if option.multiple else words[0]


def find_mistake(option: Option, value: str) -> str | None:
    """Return what is wrong with the text in the option's field, as a sentence."""
    if option.names and not value:
        return "Choose at least one."
    try:
        found = read_value(option, value)
        for word in found if isinstance(found, list) else [found]:
            if isinstance(word, str):
                option.type.convert(word, option, None)
    except ValueError:
        return "Its quotes do not match."
    except click.BadParameter as error:
        return _needed_number(option.type) or error.message
    return None


def _needed_number(kind: click.ParamType[Any]) -> str | None:
    """Return which number an option of this type takes, as a sentence; None where it takes no
    number."""
    if not isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return None
    number = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    above = "above" if getattr(kind, "min_open", False) else "from"
    bounds = ("" if least is None else f" {above} {least:,}") + (
        "" if most is None else f" to {most:,}"
    )
    return f"It must be {number}{bounds}."


class CommandForm(FieldRows):
    """A field for each option of a command that has a heading.

    By the options' keys: `choices` are the names for options whose names only the caller knows;
    `checks` are checks besides those that the command makes; `suggest` completes texts; `first` are
    values in place of the defaults.
    """

    def __init__(
        self,
        command: str,
        *,
        choices: Mapping[str, Sequence[str]] | None = None,
        checks: Mapping[str, Check] | None = None,
        suggest: Mapping[str, Suggest] | None = None,
        first: Mapping[str, str] | None = None,
    ) -> None:
        self._options = form_options(command)
        self._choices, self._checks = choices or {}, checks or {}
        self._suggest, self._first = suggest or {}, first or {}
        parts: list[Field | str] = []
        for heading, options in groupby(self._options.values(), key=lambda each: each.heading):
            parts += [heading, *map(self._field, options)]
        super().__init__(*parts)

    def _field(self, option: Option) -> Field:
        key = option.key
        value = self._first.get(key, first_value(option))
        more = self._checks.get(key)

        def check(value: str) -> str | None:
            return find_mistake(option, value) or (more and value.strip() and more(value)) or None

        names = self._choices.get(key, choices_of(option))
        if names or key in self._choices:
            several = bool(option.names) or _is_tick(option)
            return ChoiceField(
                key, option.label, option.meaning, names, value, several=several, check=check
            )
        completes = complete_path if isinstance(option.type, click.Path) else None
        return Field(
            key, option.label, option.meaning, value, hint=option.default_text,
            suggest=self._suggest.get(key, completes), check=check,
        )  # fmt: skip

    def follow(self) -> None:
        """Show the fields that have a meaning, given the values of the others, and no field with
        one choice alone."""
        values = {str(field.name): field.value for field in self.query(Field)}
        for name, option in self._options.items():
            field = self.field(name)
            only = isinstance(field, ChoiceField) and field.is_decided
            field.display = option.applies(values) and not only

    @property
    def spec(self) -> dict[str, Any]:
        """The options that do not have their defaults, for `runs.command_line`. Raises ValueError
        where quotes in a text do not match."""
        found = {}
        for name, value in self.values.items():
            option = self._options[name]
            key = option.secondary_opts[0].removeprefix("--") if option.secondary_opts else name
            found[key] = read_value(option, value)
        return {key: value for key, value in found.items() if value is not None}
