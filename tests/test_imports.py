"""What importing Diode imports. import-linter checks the imports between packages; these tests
check what it cannot see: what is in sys.modules afterwards, and the use of private parts of
torch."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
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


@pytest.fixture(scope="module")
def trees():
    """The parsed modules, by their paths in the package."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def found_in(trees: dict[str, ast.AST], look: Callable[[ast.AST], Iterable[str]]):
    """What is found in each module where something is."""
    return {name: found for name, tree in trees.items() if (found := list(look(tree)))}


def test_only_the_package_inductor_imports_torchs_inductor(trees):
    def inductors(tree):
        return [name for name in imports(tree) if f"{name}.".startswith("torch._inductor.")]

    found = found_in(trees, inductors)
    assert {name for name in found if not name.startswith("inductor/")} == set()
    assert found  # it can be found


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


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_or_mocked(tree: ast.AST) -> Iterator[str]:
    """The private names of other modules that a module imports or uses, and imports of mocks."""
    found = list(imports(tree))
    yield from (name for name in found if name.startswith("unittest"))
    ours = [name for name in found if name.startswith("diode_engine.")]
    yield from (name for name in ours if is_private(name.rsplit(".", 1)[1]))
    modules_here = {name.rsplit(".", 1)[1] for name in ours}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name)) if name in modules_here:
                if is_private(node.attr):
                    yield ast.unparse(node)


def test_no_module_reaches_into_another_or_uses_mocks(trees):
    assert found_in(trees, private_or_mocked) == {}


def versions_of_torch(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and "torch.__version__" in ast.unparse(node):
            yield ast.unparse(node)


def test_only_one_folder_asks_for_the_version_of_torch(trees):
    found = found_in(trees, versions_of_torch)
    assert {name for name in found if "torch_internals/" not in name} == set()
