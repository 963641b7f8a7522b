"""Private parts of torch are used in one place, diode_engine/inductor/torch_internals.

The rule, for every module outside of that folder that imports torch, and for all of inductor:

- An attribute whose name begins with one underscore is used on `self` and `cls` only.
- No such name is a text, as getattr takes one, and none is imported.
- What a generator or a frame has in its variables is not read.

Names of private modules (`torch._inductor`) may be imported. Dunder names are Python's, and aten's
operators are no attributes: a graph names them so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import diode_engine

PACKAGE = Path(diode_engine.__file__).parent
THE_PLACE = PACKAGE / "inductor" / "torch_internals"
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if THE_PLACE not in path.parents]

OWNERS = {"self", "cls", "aten"}
FRAME_VARIABLES = {"gi_frame", "f_locals"}
OWN = "_diode"  # the names of what Diode adds to torch's objects begin so
# Python's own: of named tuples, of the modules os and sys.
PYTHONS = {"_asdict", "_fields", "_replace", "_exit", "_current_frames"}


def is_private(name: str) -> bool:
    one_underscore = re.fullmatch("_[a-zA-Z]\\w*", name) is not None
    return one_underscore and not name.startswith(OWN) and name not in PYTHONS


def private_uses(tree: ast.Module) -> Iterator[str]:
    """The uses that break the rule, as texts."""
    nodes = list(ast.walk(tree))
    pieces = {piece for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            ours = ast.unparse(node.value) in OWNERS
            if node.attr in FRAME_VARIABLES or (is_private(node.attr) and not ours):
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node not in pieces and is_private(node.value):
                yield node.value
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if is_private(alias.name))


def knows_torch(path: Path) -> bool:
    """Whether the module is one of inductor, or imports torch."""
    text = path.read_text(encoding="utf-8")
    named = re.search(r"^\s*(import|from) torch\b", text, re.MULTILINE)
    return PACKAGE / "inductor" in path.parents or named is not None


def test_private_parts_of_torch_are_used_in_one_place():
    known = filter(knows_torch, SOURCES)
    trees = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text("utf-8")) for path in known}
    assert len(trees) > 50
    used = {name: list(private_uses(tree)) for name, tree in trees.items()}
    assert {name: uses for name, uses in used.items() if uses} == {}


@pytest.mark.parametrize(
    "text",
    [
        "heuristic._filter_configs(configs)",
        "torch.cuda._sleep(1)",
        "torch._dynamo.reset()",
        "class C(K):\n    def _hook(self):\n        return super()._hook()",
        "getattr(utils, '_use_autotune_backend')",
        "NAME = '_should_pad'\nsetattr(module, NAME, None)",
        "for name in {'_lazy_init': None}:\n    setattr(torch.cuda, name, answer)",
        "from torch.cuda import _sleep",
        "offer.gi_frame.f_locals",
    ],
)
def test_the_rule_finds_every_way_to_write_one(text):
    assert list(private_uses(ast.parse(text))) != []


@pytest.mark.parametrize(
    "text",
    [
        "import torch._inductor.config\nfrom torch._inductor import choices",
        "class C:\n    def __init__(self):\n        self._a = 1",
        "aten._unsafe_view.default",
        "getattr(graph, '_diode', None), request._replace(op='mm'), f'{name}_dtype'",
    ],
)
def test_the_rule_leaves_the_rest(text):
    assert list(private_uses(ast.parse(text))) == []
