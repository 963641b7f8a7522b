"""Settings: every field with its meaning, and other keys for actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action, clashes
from diode_app.data.filters import check_query
from diode_app.screens.base import DiodeScreen
from diode_app.screens.places import sections
from diode_app.settings import Settings, read_value, write_value
from diode_app.widgets.form import ChoiceField, Field
from diode_app.widgets.styling import FocusScroll
from diode_app.widgets.work import acts
from diode_engine.errors import DiodeError


class SettingsScreen(DiodeScreen):
    """A valid change is applied and written at once."""

    MODE = "settings"
    NEEDS_STORE = False
    ACTIONS = (
        Action("settings.reset", "r", "Defaults", "Set all settings to their defaults."),
    )  # fmt: skip
    HEADLESS = (("Edit the file", "${{EDITOR:-vi}} {settings}"),)

    def body(self) -> ComposeResult:
        with FocusScroll():
            yield Static(id="settings-file", markup=False, classes="muted")
            for field in fields(Settings):
                name, of = field.name, field.metadata
                value = write_value(getattr(self.session.settings, name))
                if of["names"]:
                    yield ChoiceField(name, of["label"], of["sentence"], of["names"], value)
                    continue
                form = f" Here: {of['form']}" if of["form"] else ""
                yield Field(
                    name, of["label"], of["sentence"] + form, value,
                    check=partial(self._check, name),
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
            value = write_value(getattr(settings, str(field.name)))
            if field.error is None and not field.has_focus_within and field.value != value:
                field.value = value

    def values(self) -> Mapping[str, object]:
        return {"settings": self.session.settings_path}

    def on_field_changed(self, event: Field.Changed) -> None:
        if not event.right:
            return
        name = str(event.field.name)
        value = read_value(name, event.value)
        if value != getattr(self.session.settings, name):
            self.dashboard.change_settings(**{name: value})

    def _check(self, name: str, given: str) -> str | None:
        try:
            value = read_value(name, given)
            replace(Settings(), **{name: value})
        except DiodeError as error:
            return str(error)
        if name == "filters":
            parts = (each.partition(" ") for each in value.values())
            return next(
                filter(None, (check_query(place, query) for place, _, query in parts)), None
            )
        if name != "keys":
            return None
        actions = [action for _, part in sections() for action in part]
        return next(iter(clashes([*actions, *getattr(self.app, "ACTIONS", ())], value)), None)

    @acts()
    async def action_reset(self) -> str | None:
        question = "Set all settings to their defaults? Saved filters stay."
        if not await self.confirm(question, "Take back"):
            return None
        kept = self.session.settings.filters  # which are a person's work, and no setting
        self._fill(replace(Settings(), filters=kept))
        return "All settings have their defaults."
