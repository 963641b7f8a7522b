"""Puts what lies at the repository root into the wheel: the store's migrations, and the trained
models that Diode ships. An editable install reads them where they are. The datasets are in a clone
alone: a compile does not need them."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = {
    "migrations": "diode_engine/_migrations",
    "trained_models": "diode_engine/_shipped/trained_models",
}


class ShipWithThePackage(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        for source, target in SHIPPED.items():
            if Path(self.root, source).is_dir():
                build_data["force_include"][source] = target
