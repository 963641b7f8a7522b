"""About: versions, paths and hardware, to paste into a report of a bug."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys

from textual.app import ComposeResult
from textual.widgets import Static

from diode_app.actions import Action
from diode_app.data.store_access import Look
from diode_app.screens.base import DiodeScreen
from diode_app.widgets.styling import FocusScroll
from diode_engine import paths
from diode_engine.plain_text import format_fields
from diode_engine.version import __version__

_PACKAGES = (
    "textual", "textual-plotext", "sqlalchemy", "alembic", "numpy", "xgboost-cpu", "xgboost",
    "torch", "triton",
)  # fmt: skip


class AboutScreen(DiodeScreen):
    """The text that `e` copies."""

    MODE = "about"
    NEEDS_STORE = False
    ACTIONS = (
        Action("about.copy", "e", "Copy", "Copy all of it.", "diode-engine --version"),
    )  # fmt: skip

    def body(self) -> ComposeResult:
        with FocusScroll():
            yield Static(id="about-text", markup=False)

    def look_changed(self, look: Look) -> None:
        self.query_one("#about-text", Static).update(self.report())

    def report(self) -> str:
        look = self.session.store.last
        here = self.session.here
        facts = {
            "diode": __version__,
            "python": f"{platform.python_version()} on {platform.platform()}",
            "terminal": f"{os.environ.get('TERM', '?')}, {self.app.size.width}x"
            f"{self.app.size.height}, {os.environ.get('COLORTERM', 'no truecolor told')}",
            "store": f"{self.session.location} ({look.condition})",
            "settings": str(self.session.settings_path or "not readable"),
            "data": str(paths.data_dir()),
            "shipped": str(paths.shipped_dir()),
            "python is": sys.executable,
            "hardware": "not known yet" if here is None else str(here),
        }
        return format_fields([*facts.items(), *((name, _version(name)) for name in _PACKAGES)])

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self.report())
        self.notify("It is copied, if this terminal supports that (OSC 52).")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
