"""Where Diode keeps its files. This module alone decides it.

The store, the user's models and the log lie in the data directory. What Diode ships lies at the
repository root in a checkout, and inside the package where Diode was installed from a wheel.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from diode_engine.location import Location, ServerUrl, location_of


def data_dir() -> Path:
    """The directory of everything Diode writes: $DIODE_HOME, else the platform's place for an
    application's data. It need not exist yet."""
    return _user_dir("user_data_path")


def settings_path() -> Path:
    """The user's settings of the dashboard, a TOML file that need not exist."""
    return _user_dir("user_config_path") / "dashboard.toml"


def config_path() -> Path:
    """The user's defaults of the commands' options, a TOML file that need not exist."""
    return _user_dir("user_config_path") / "config.toml"


def _user_dir(platform: str) -> Path:
    """$DIODE_HOME, else the path that this function of platformdirs gives."""
    home = os.environ.get("DIODE_HOME")
    if home:
        return Path(home).expanduser()
    import platformdirs

    found: Path = getattr(platformdirs, platform)("diode", appauthor=False)
    return found


def store_location(given: str | os.PathLike[str] | ServerUrl | None = None) -> Location:
    """Where the store is: what was given (`--store`), else $DIODE_STORE, else diode.db in the data
    directory. Raises StoreError for a URL that cannot be a store's."""
    chosen = given or os.environ.get("DIODE_STORE")
    if not chosen:
        return data_dir() / "diode.db"
    found = location_of(chosen)
    return found.expanduser() if isinstance(found, Path) else found


def beside(store: Location, suffix: str) -> Path:
    """The path, on this machine, of files that belong to a store and are not part of it, such as
    logs: beside the store's file; for a store on a server, in a folder of the data directory."""
    if isinstance(store, Path):
        return store.with_name(f"{store.name}{suffix}")
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{store.host}_{store.name}")
    digest = hashlib.sha256(str(store).encode()).hexdigest()[:8]  # users, ports and options differ
    return data_dir() / "servers" / f"{name}-{digest}{suffix}"


def binaries_dir() -> Path:
    """Where compiled kernels are kept between collections; it can be removed at any time."""
    return data_dir() / "binaries"


def shipped_dir() -> Path:
    """The directory that holds trained_models/ as shipped with this Diode and, in a clone of the
    repository, datasets/."""
    package = Path(__file__).resolve().parent
    root = package.parent
    return root if (root / "pyproject.toml").is_file() else package / "_shipped"
