"""Settings: every field with its meaning, and other keys for actions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action, clashes
from diode_app.screens.base import DiodeScreen, SettingsChanged
from diode_app.screens.places import sections
from diode_app.settings import COLUMNS, FILTERED, WAYS, Settings, SettingsError, sentence
from diode_app.themes import NAMES
from diode_app.widgets.form import ChoiceField, Field
from diode_app.widgets.modals import Notice
from diode_app.widgets.styling import FocusScroll
from diode_engine.errors import DiodeError


class SettingsScreen(DiodeScreen):
    """A valid change is applied and written at once."""

    MODE = "settings"
    NEEDS_STORE = False
    ACTIONS = (
        Action("settings.edit", "e", "Where", "Show where the file is, to edit it.",
               "${{EDITOR:-vi}} {settings}"),
        Action("settings.reset", "r", "Defaults", "Set all settings to their defaults."),
    )  # fmt: skip

    def body(self) -> ComposeResult:
        now = self.session.settings
        with FocusScroll():
            yield Static(id="settings-file", markup=False, classes="muted")
            yield ChoiceField("theme", "Theme", sentence("theme"), NAMES, now.theme)
            yield Field("rows", "Rows", sentence("rows"), str(now.rows), check=_check_rows)
            yield Field(
                "run_columns", "Columns of the runs", sentence("run_columns"),
                " ".join(now.run_columns), check=partial(_check_columns, "run_columns"),
            )  # fmt: skip
            yield Field(
                "problem_columns", "Columns of the problems", sentence("problem_columns"),
                " ".join(now.problem_columns), check=partial(_check_columns, "problem_columns"),
            )  # fmt: skip
            yield ChoiceField("tell", "End of a run", sentence("tell"), WAYS, now.tell)
            yield Field(
                "keys", "Keys", f"{sentence('keys')} Here: runs.cancel=x runs.note=m",
                _as_words(now.keys), check=self._check_keys,
            )  # fmt: skip
            yield Field(
                "filters", "Saved filters", f"{sentence('filters')} Here: 'tall=data op:bmm "
                "m>4096' 'night=runs tag:night'", _as_words(now.filters), check=_check_filters,
            )  # fmt: skip

    def body_mounted(self) -> None:
        path = self.session.settings_path
        if self.session.read_only:
            where = "They hold until you leave: with --read-only nothing is written."
        else:
            where = f"Kept in {path}" if path else "Not written: the file could not be read."
        self.query_one("#settings-file", Static).update(where)

    def store_looked(self) -> None:
        self._fill(self.session.settings)  # keys of other screens change them too

    def _fill(self, settings: Settings) -> None:
        for field in self.query(Field):
            value = getattr(settings, str(field.name))
            if isinstance(value, tuple):
                value = " ".join(value)
            elif isinstance(value, Mapping):
                value = _as_words(value)
            if field.error is None and not field.has_focus_within and field.value != str(value):
                field.value = str(value)

    def values(self) -> Mapping[str, object]:
        return {"settings": self.session.settings_path}

    def on_field_changed(self, event: Field.Changed) -> None:
        if not event.right:
            return
        now, name = self.session.settings, str(event.field.name)
        value: Any = event.value
        if name == "rows":
            value = int(event.value)
        elif name in COLUMNS:
            value = tuple(event.value.split())
        elif name in _BY_NAME:
            value = _by_name(event.value, _BY_NAME[name])
        changed = replace(now, **{name: value})
        if changed != now:
            self.post_message(SettingsChanged(changed))

    def _check_keys(self, given: str) -> str | None:
        try:
            keys = _by_name(given, _BY_NAME["keys"])
        except SettingsError as error:
            return str(error)
        actions = [action for _, part in sections() for action in part]
        return next(iter(clashes([*actions, *_everywhere(self)], keys)), None)

    def action_edit(self) -> None:
        path = self.session.settings_path
        self.app.push_screen(Notice("Where the settings are", str(path)))

    def action_reset(self) -> None:
        async def reset() -> str | None:
            question = "Set all settings to their defaults? Saved filters stay."
            if not await self.confirm(question, "Take back"):
                return None
            kept = self.session.settings.filters  # which are a person's work, and no setting
            self._fill(replace(Settings(), filters=kept))
            return "All settings have their defaults."

        self.act(reset, "takes the settings back")


def _everywhere(screen: DiodeScreen) -> tuple[Action, ...]:
    actions: tuple[Action, ...] = getattr(screen.app, "ACTIONS", ())
    return actions


def _check_columns(setting: str, given: str) -> str | None:
    unknown = [name for name in given.split() if name not in COLUMNS[setting]]
    if unknown or not given.split():
        return f"It must be some of {', '.join(COLUMNS[setting])}."
    return None


def _check_rows(given: str) -> str | None:
    right = given.isdecimal() and 10 <= int(given) <= 500
    return None if right else "It must be a whole number from 10 to 500."


def _check_filters(given: str) -> str | None:
    from diode_engine.store.fields import PROBLEMS, RUNS

    try:
        filters = _by_name(given, _BY_NAME["filters"])
        Settings(filters=filters)
        for text in filters.values():
            place, _, query = text.partition(" ")
            (RUNS if place == "runs" else PROBLEMS).parse(query)
    except DiodeError as error:
        return str(error)
    return None


# The settings that are tables of names, and the form of a word in their fields.
_BY_NAME = {
    "keys": "a name, = and a key, such as runs.cancel=x",
    "filters": f"a name, =, {' or '.join(FILTERED)} and a query, in quotation marks",
}


def _as_words(values: Mapping[str, str]) -> str:
    return shlex.join(f"{name}={value}" for name, value in values.items())


def _by_name(given: str, form: str) -> dict[str, str]:
    """Return the inverse of `_as_words`. Raises SettingsError where a word does not have this
    form."""
    try:
        words = shlex.split(given)
    except ValueError:  # a quotation mark that is not closed, or is itself a key
        words = [given]
    values = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (name and sign and value):
            raise SettingsError(f"{word} is not {form}.")
        values[name] = value
    return values
