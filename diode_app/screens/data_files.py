"""Importing timings from files into the store, and exporting them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from diode_app.actions import Action
from diode_app.screens.base import DiodeScreen
from diode_app.screens.run import RunScreen
from diode_app.widgets.form import existing_file
from diode_app.widgets.modals import Prompt
from diode_app.widgets.path_completion import complete_path
from diode_app.widgets.saving import target_of

FILE_ACTIONS = (
    Action("data.import-file", "f", "Import", "Add the timings of a dataset file.",
           "diode-engine data import {file} --store={store}"),
    Action("data.export-file", "x", "To file", "Write all timings to a dataset file.",
           "diode-engine data export {target} --store={store}"),
    Action("data.import-shipped", "i", "Import shipped", "Import the timings that come with Diode.",
           "diode-engine data import datasets/*/*.msgpack.zst --store={store}", footer=False,
           does="app.import_shipped"),
)  # fmt: skip


class FileActions(DiodeScreen):
    """A mixin. Headless commands do the work and continue where the dashboard is left; an import is
    in the list of runs."""

    def values(self) -> Mapping[str, object]:
        return {"file": None, "target": "timings.msgpack.zst"}

    def action_import_file(self) -> None:
        async def bring() -> str | None:
            self.session.store.must_be_writable()
            given = await self.app.push_screen_wait(
                Prompt(
                    "Import the timings of which file?",
                    f"{Path.cwd()}/",
                    check=existing_file,
                    suggest=complete_path,
                )
            )
            if given is None:
                return None
            file = Path(given).expanduser()
            run = await self.session.store.start_import((file,))
            self.app.push_screen(RunScreen(self.session, run))
            return f"Run {run} imports {file.name}; it continues when you leave."

        self.act(bring, "imports a file")

    def action_export_file(self) -> None:
        async def write() -> str | None:
            from diode_engine.store.datasets.format import SUFFIXES

            self.session.store.must_be_writable()
            question = "Write all timings of the store to which file?"
            target = await target_of(self.app, question, "timings.msgpack.zst", SUFFIXES)
            if target is None:
                return None
            self.notify(f"Writing {target.name} ...", markup=False)
            told = await self.session.store.command(
                ["data", "export", str(target.absolute()), f"--store={self.session.location}"]
            )
            return f"{json.loads(told)['timings']:,} timings are in {target}."

        self.act(write, "exports the timings")
