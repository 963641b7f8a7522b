"""Processes of Diode's own take no module from the folder that they are started in, which may be
somebody else's: `python -m` and `python -c` do, without -P."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = [path for room in ("diode_engine", "diode_app") for path in (ROOT / room).rglob("*.py")]


def commands(path: Path) -> list[list[str | None]]:
    """The words after sys.executable wherever it begins a list, a tuple or a call's words."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        words = (
            node.elts if isinstance(node, ast.List | ast.Tuple)
            else node.args if isinstance(node, ast.Call) else []
        )  # fmt: skip
        if words and ast.unparse(words[0]) == "sys.executable":
            found.append([w.value if isinstance(w, ast.Constant) else None for w in words[1:]])
    return found


def test_every_command_of_our_own():
    ours = [(path, words) for path in SOURCES for words in commands(path)]
    assert len(ours) >= 8
    assert [path for path, words in ours if words[0] != "-P"] == []


def test_what_it_finds(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("run([sys.executable, '-m', x])\nrun(sys.executable, '-P', '-c', 'y')\n")
    assert sorted(commands(path), key=str) == [["-P", "-c", "y"], ["-m", None]]
