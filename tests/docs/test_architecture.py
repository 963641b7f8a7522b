"""docs/architecture.md names files and folders that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_every_file_that_the_pages_name_is_there():
    missing = {
        f"{page}: {name}"
        for page in PAGES
        for name in named_paths((ROOT / "docs" / page).read_text(encoding="utf-8"))
        if not is_there(name)
    }
    assert not missing


# Each promise of docs/reliability.md has a test that is there

SECTIONS = (ROOT / "docs" / "reliability.md").read_text().split("\n## ")[1:]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def files(section: str) -> dict[str, Path]:
    """The test files that a section names. A name without a folder is looked for in the folders of
    the others."""
    names = [name.split()[0] for name in quoted(section) if name.split()[0].endswith(".py")]
    folders = [(ROOT / name).parent for name in names if "/" in name]
    found = {}
    for name in names:
        places = [ROOT / name] if "/" in name else [folder / name for folder in folders]
        found[name] = next((path for path in places if path.is_file()), ROOT / name)
    return found


def promises(section: str) -> Iterator[str]:
    """The second column of its tables."""
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith("| promise "):
            yield line.removesuffix(" |").split(" | ")[1]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.split("\n")[0])
def test_each_promise_has_a_test(section):
    named = files(section)
    text = "\n".join(path.read_text() for path in named.values())
    for where in promises(section):
        tests = [name for name in quoted(where) if name.split()[0] not in named]
        assert quoted(where) or where == "the same", where
        for test in tests:
            there = re.search(rf"def test_\w*{test}|[\"']{test}[\"']", text)
            assert there, f"no test {test} in {list(named)}"
