"""Runs code when a module is imported, and nothing before. So `import diode_engine` can prepare
torch.compile without importing torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diode_engine.inductor.guard import do_nothing, guard

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` right after the module `name` was imported: now, where it was imported already,
    else at its first import; once for each different action. An Exception in `action` is logged,
    and the import goes on."""
    finder = _Finder(name, action)
    if name in sys.modules:
        importlib.import_module(name)  # waits for another thread that is still importing it
        _run(name, action)
    elif finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def _run(name: str, action: Callable[[], None]) -> None:
    guard(f"it has no place in {name} of this version", stock=do_nothing)(action)()


@dataclass(frozen=True)
class _Finder:
    _name: str
    _action: Callable[[], None]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        # Called by an import, or by code that only wants to know where the module is.
        behind = sys.meta_path.index(self) + 1 if self in sys.meta_path else 0
        finders = [each for each in sys.meta_path[behind:] if hasattr(each, "find_spec")]
        specs = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next((each for each in specs if each is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._imported)  # type: ignore[assignment]
        return spec

    def _imported(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _run(self._name, self._action)


class _Loader:
    """A module's own loader, which calls `then` after the module is executed."""

    def __init__(self, own: Loader, then: Callable[[], None]) -> None:
        self._own = own
        self._then = then

    def __getattr__(self, name: str) -> Any:  # get_source, get_code, …
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        self._then()
