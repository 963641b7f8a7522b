"""The documentation's site can be built, without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import diode_engine

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("diode_engine.store", "diode_engine.runs", "diode_engine.registry")
# Not in the reference: described where they are used, or types and constants of no use alone.
LEFT_OUT = {"__version__", "Group", "Process", "DEFAULT", "KINDS", "MIN_LIKENESS"}


@pytest.fixture(scope="session")
def site(made_once):
    return made_once("site", _build)


def _build(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", folder],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_front_page_leads_to_all_pages(site):
    assert "docs/README.html" in (site / "index.html").read_text(encoding="utf-8")
    front = (site / "docs" / "README.html").read_text(encoding="utf-8")
    contents = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in {*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "README.md"}:
        assert f"{page.stem}.html" in front, page.name
        assert f"({page.name})" in contents, page.name


def test_the_page_on_benchmarks_has_every_script():
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    missing = {script.name for script in (ROOT / "benchmarks").glob("*.py")} - set(
        re.findall(r"\w+\.py", page)
    )
    assert not missing


def test_it_needs_no_network(site):
    loaded = re.compile(
        r"""<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)\s*=\s*["']?(?:https?:)?//"""
        r"""|url\(\s*["']?(?:https?:)?//|@import\s+["'](?:https?:)?//"""
    )
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > 20
    for file in files:
        assert not loaded.search(file.read_text(encoding="utf-8")), file


def test_the_reference_has_what_can_be_imported(site):
    pages = [page.read_text(encoding="utf-8") for page in (site / "docs" / "api").glob("*.html")]
    described = {name for page in pages for name in re.findall(r'id="(diode_engine[\w.]+)"', page)}
    for module in ("diode_engine", *ROOMS):
        for name in importlib.import_module(module).__all__:
            home = diode_engine._HOME.get(name, module) if module == "diode_engine" else module
            assert name in LEFT_OUT or {f"{module}.{name}", f"{home}.{name}"} & described, name


def test_the_reference_is_of_these_commands():
    writer = runpy.run_path(str(ROOT / "docs" / "write_commands.py"))
    written = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert written == writer["reference"](), "run `python docs/write_commands.py`"
