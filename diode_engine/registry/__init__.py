"""Trained models: which there are, what each was made from, and which one is taken for a device.

A version is a folder that never changes (see models.artifact). Its number is a whole number that is
never used twice. What may change about it (aliases, status, tags, notes and their history) is kept
apart. The alias "default" names the model that is taken for a hardware; without this alias, the
newest model is taken. See docs/registry.md.
"""

from diode_engine.registry.aliases import (
    DEFAULT,
    aliases_for,
    default_for,
    history,
    last_change,
    remove_alias,
    rollback,
    set_alias,
    set_default,
)
from diode_engine.registry.archive import export_model, import_model
from diode_engine.registry.card import card, lineage, side_by_side
from diode_engine.registry.choice import (
    MIN_LIKENESS,
    Match,
    best_for,
    differences,
    load_predictor,
    matches,
    taken_for_all,
)
from diode_engine.registry.facts import HistoryAction, ModelFacts, ModelStatus
from diode_engine.registry.overview import ModelEntry, overview
from diode_engine.registry.references import gpu_named, resolve, resolve_for, resolve_here
from diode_engine.registry.sources import ModelVersion, gpus_of_models, list_models, sources
from diode_engine.registry.versions import (
    check_registrable,
    facts_of,
    register,
    remove,
    set_note,
    set_verdict,
    status_of,
    tag,
    verify,
)

__all__ = [
    "DEFAULT", "MIN_LIKENESS", "HistoryAction", "Match", "ModelEntry", "ModelFacts", "ModelStatus",
    "ModelVersion", "aliases_for", "best_for", "card", "check_registrable", "default_for",
    "differences", "export_model", "facts_of", "gpu_named", "gpus_of_models", "history",
    "import_model", "last_change", "lineage", "list_models",
    "load_predictor", "matches", "overview", "register", "remove", "remove_alias", "resolve",
    "resolve_for", "resolve_here", "rollback", "set_alias", "set_default", "set_note",
    "set_verdict", "side_by_side", "sources", "status_of", "tag", "taken_for_all", "verify",
]  # fmt: skip
