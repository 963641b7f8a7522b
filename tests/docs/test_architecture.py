"""docs/architecture.md names files and folders that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("architecture.md", "extending.md", "dashboard-development.md")


def named_paths(text: str) -> set[str]:
    """The paths in back quotes: with a slash, or the name of a module; not those of torch."""
    text = re.sub(r"```.*?```|`[^`\n]+` of torch", "", text, flags=re.DOTALL)
    found = re.findall(r"`([\w./-]+)`", text)
    return {name for name in found if "/" in name or name.endswith(".py")}


def is_there(name: str) -> bool:
    folders = (ROOT, ROOT / "diode_engine", ROOT / "diode_app", ROOT / "docs")
    if any((folder / name).exists() for folder in folders):
        return True
    # A module of the page's own table, such as those of inductor/hook.
    return "/" not in name and any((ROOT / "diode_engine").rglob(name))


def test_every_file_that_the_pages_name_is_there() -> None:
    missing = {
        f"{page}: {name}"
        for page in PAGES
        for name in named_paths((ROOT / "docs" / page).read_text(encoding="utf-8"))
        if not is_there(name)
    }
    assert not missing
