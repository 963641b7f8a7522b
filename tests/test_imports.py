"""What importing Diode imports. import-linter checks the imports between packages; these tests
check what it cannot see: what is in sys.modules afterwards, and the use of private parts of
torch."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import diode_engine

PACKAGE = Path(diode_engine.__file__).parent

# Rooms that a program without torch uses: the command's help, the dashboard, predictions.
WITHOUT_TORCH = {
    "cli", "core", "errors", "features", "location", "models", "paths", "problems", "registry",
    "runs", "store", "validation", "version",
}  # fmt: skip

# Imports the modules named on stdin in one fresh process, in this order, and tells after which
# one of them something unwanted was there.
PROBE = """
import importlib, json, sys
modules, unwanted = json.load(sys.stdin)
found = {}
for module in modules:
    importlib.import_module(module)
    for name in unwanted:
        if name in sys.modules:
            found.setdefault(name, module)
json.dump(found, sys.stdout)
"""


def modules(folder: Path = PACKAGE, prefix: str = "diode_engine") -> Iterator[str]:
    yield prefix
    for entry in pkgutil.iter_modules([str(folder)]):
        if entry.ispkg:
            yield from modules(folder / entry.name, f"{prefix}.{entry.name}")
        else:
            yield f"{prefix}.{entry.name}"


def unwanted_after(names: list[str], *unwanted: str) -> dict[str, str]:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps([names, unwanted]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr
    found = json.loads(probe.stdout)
    assert isinstance(found, dict)
    return found


def test_the_package_itself_is_light():
    heavy = ("torch", "numpy", "sqlalchemy", "alembic", "xgboost", "click", "rich", "textual")
    assert unwanted_after(["diode_engine"], *heavy) == {}


def test_no_module_brings_a_screen():
    assert unwanted_after(list(modules()), "textual") == {}


def test_records_store_models_and_commands_come_without_torch():
    names = [name for name in modules() if len(name.split(".")) > 1]
    names = [name for name in names if name.split(".")[1] in WITHOUT_TORCH]
    assert {name.split(".")[1] for name in names} == WITHOUT_TORCH
    assert "diode_engine.cli.group" in names
    assert unwanted_after(names, "torch", "triton") == {}


def imports(tree: ast.AST) -> Iterator[str]:
    """Everything that a module imports, in a function as well, or by import_module("...")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            function, first = node.func, node.args[0]
            name = getattr(function, "attr", getattr(function, "id", ""))
            if name in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield str(first.value)


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize(
    "source",
    [path for path in SOURCES if "inductor" not in path.relative_to(PACKAGE).parts[:1]],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_only_the_room_inductor_imports_torchs_inductor(source):
    found = imports(ast.parse(source.read_text(encoding="utf-8")))
    assert [name for name in found if f"{name}.".startswith("torch._inductor.")] == []


def test_the_search_for_imports_sees_every_way_to_write_one():
    text = (
        "import torch._inductor.config\nfrom torch import _inductor\n"
        "def f():\n    from torch._inductor.ir import Buffer\n"
        "importlib.import_module('torch._inductor.choices')\n"
    )
    assert sorted(imports(ast.parse(text))) == [
        "torch._inductor",
        "torch._inductor.choices",
        "torch._inductor.config",
        "torch._inductor.ir.Buffer",
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_reaches_into_another_or_uses_mocks(source):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    found = list(imports(tree))
    assert [name for name in found if name.startswith("unittest")] == []
    ours = [name for name in found if name.startswith("diode_engine.")]
    assert [name for name in ours if name.rsplit(".", 1)[1].startswith("_")
            and not name.endswith("__")] == []  # fmt: skip
    modules_here = {name.rsplit(".", 1)[1] for name in ours}
    assert [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules_here
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
    ] == []


@pytest.mark.parametrize(
    "source",
    [path for path in SOURCES if path.parent.name != "torch_internals"],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_only_one_folder_asks_for_the_version_of_torch(source):
    asked = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare) and "torch.__version__" in ast.unparse(node)
    ]
    assert asked == []
