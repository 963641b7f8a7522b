"""Settings: every field with its sentence, and other keys for actions."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from diode_app.actions import Action, clashes
from diode_app.screens.base import DiodeScreen, SettingsChanged
from diode_app.screens.places import sections
from diode_app.settings import COLUMNS, Settings, SettingsError, sentence
from diode_app.themes import NAMES
from diode_app.widgets.form import Field, whole_number
from diode_app.widgets.modals import Notice


class SettingsScreen(DiodeScreen):
    """A change is taken when it is right, and written at once."""

    MODE = "settings"
    NEEDS_STORE = False
    ACTIONS = (
        Action("settings.edit", "e", "Where", "Show where the file is, to edit it.",
               "${{EDITOR:-vi}} {settings}"),
        Action("settings.reset", "r", "Defaults", "All settings as they come."),
    )  # fmt: skip

    def body(self) -> ComposeResult:
        now = self.session.settings
        with VerticalScroll():
            yield Static(id="settings-file", markup=False, classes="muted")
            yield Field("theme", "Theme", sentence("theme"), now.theme, choices=NAMES)
            yield Field(
                "rows", "Rows", sentence("rows"), str(now.rows), check=whole_number(10, 500)
            )
            yield Field(
                "run_columns", "Columns of the runs", sentence("run_columns"),
                " ".join(now.run_columns), check=partial(_check_columns, "run_columns"),
            )  # fmt: skip
            yield Field(
                "problem_columns", "Columns of the problems", sentence("problem_columns"),
                " ".join(now.problem_columns), check=partial(_check_columns, "problem_columns"),
            )  # fmt: skip
            yield Field(
                "keys", "Keys", f"{sentence('keys')} Here: runs.cancel=x runs.note=m",
                _keys_text(now.keys), check=self._check_keys,
            )  # fmt: skip

    def body_mounted(self) -> None:
        path = self.session.settings_path
        if self.session.read_only:
            where = "They hold until you leave: with --read-only nothing is written."
        else:
            where = f"Kept in {path}" if path else "Not written: the file could not be read."
        self.query_one("#settings-file", Static).update(where)

    def values(self) -> Mapping[str, object]:
        return {"settings": self.session.settings_path}

    def on_field_changed(self, event: Field.Changed) -> None:
        if not event.right:
            return
        now = self.session.settings
        if event.field.name == "theme":
            changed = replace(now, theme=event.value)
        elif event.field.name == "rows":
            changed = replace(now, rows=int(event.value))
        elif event.field.name == "run_columns":
            changed = replace(now, run_columns=tuple(event.value.split()))
        elif event.field.name == "problem_columns":
            changed = replace(now, problem_columns=tuple(event.value.split()))
        else:
            changed = replace(now, keys=_keys(event.value))
        if changed != now:
            self.post_message(SettingsChanged(changed))

    def _check_keys(self, given: str) -> str | None:
        try:
            keys = _keys(given)
        except SettingsError as error:
            return str(error)
        actions = [action for _, part in sections() for action in part]
        return next(iter(clashes([*actions, *_everywhere(self)], keys)), None)

    def action_edit(self) -> None:
        path = self.session.settings_path
        self.app.push_screen(Notice("Where the settings are", str(path)))

    def action_reset(self) -> None:
        async def reset() -> str | None:
            if not await self.confirmed("Take all settings back to what they were?", "Take back"):
                return None
            plain = Settings()
            self.query_one("#field-theme", Field).value = plain.theme
            self.query_one("#field-rows", Field).value = str(plain.rows)
            self.query_one("#field-run_columns", Field).value = " ".join(plain.run_columns)
            self.query_one("#field-problem_columns", Field).value = " ".join(plain.problem_columns)
            self.query_one("#field-keys", Field).value = ""
            return "All settings are as they come."

        self.act(reset, "takes the settings back")


def _everywhere(screen: DiodeScreen) -> tuple[Action, ...]:
    actions: tuple[Action, ...] = getattr(screen.app, "ACTIONS", ())
    return actions


def _check_columns(setting: str, given: str) -> str | None:
    unknown = [name for name in given.split() if name not in COLUMNS[setting]]
    if unknown or not given.split():
        return f"It must be some of {', '.join(COLUMNS[setting])}."
    return None


def _keys_text(keys: Mapping[str, str]) -> str:
    return " ".join(f"{name}={key}" for name, key in keys.items())


def _keys(given: str) -> dict[str, str]:
    """Raises SettingsError where a word is not name=key."""
    keys = {}
    for word in shlex.split(given) if given.count('"') % 2 == 0 else [given]:
        name, sign, key = word.partition("=")
        if not (name and sign and key):
            raise SettingsError(f"{word} is not a name, = and a key, such as runs.cancel=x.")
        keys[name] = key
    return keys
