"""The migrations of the store's schema, and whether this Diode knows a schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diode_engine.errors import SchemaTooNewError, StoreError
from diode_engine.location import Location
from diode_engine.store import schema

if TYPE_CHECKING:  # Alembic is needed, and imported, only to migrate
    from alembic.config import Config


def migrations_folder() -> Path:
    """Alembic's folder: inside an installed package, beside it in a checkout. Raises StoreError
    where it is missing."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise StoreError("The migrations are missing from this installation; install Diode again.")


def alembic_config() -> Config:
    """Alembic's configuration, with Diode's migrations."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def refuse_newer(store: Location, revision: str | None) -> None:
    """Raises SchemaTooNewError where this Diode does not know the store's schema."""
    if revision in (None, schema.HEAD):
        return
    from alembic.script import ScriptDirectory

    known = {
        script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()
    }
    if revision not in known:
        raise SchemaTooNewError(
            f"The store {store} was written by a newer Diode (its schema is {revision}, this one "
            f"knows up to {schema.HEAD}); update Diode, or give another path."
        )
