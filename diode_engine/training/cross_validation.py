"""Cross-validation: for each part of the problems, a new model is fitted to the other parts and
judged on this one. It tells how well a way of making models works, not how well one model does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.artifact import Artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.model_types import ENSEMBLE
from diode_engine.models.predictor import Predictor
from diode_engine.problems import splits
from diode_engine.training.fit_pool import FitCallback
from diode_engine.training.fit_steps import FitTask
from diode_engine.training.fits import IN_THIS_PROCESS, FitExecutor
from diode_engine.training.settings import TrainingSettings
from diode_engine.training.trainable_rows import learnable, one_environment
from diode_engine.validation import Report, evaluate
from diode_engine.validation.cross_validation import CrossValidation

FOLDS = 5
KINDS: Mapping[str, Callable[[TimingTable], list[splits.SplitPart]]] = {
    "folds": lambda table: splits.folds(table, FOLDS),
    "llm": splits.leave_one_named_out,
    "sizes": splits.largest,
}
_MODEL = "the model"


def cross_validate(
    table: TimingTable,
    kind: str,
    *,
    family: str = ENSEMBLE,
    settings: TrainingSettings | None = None,
    report: FitCallback = lambda label, progress: None,
    begins: Callable[[Sequence[str]], None] = lambda parts: None,
    fits: FitExecutor = IN_THIS_PROCESS,
) -> CrossValidation:
    """Cross-validates models of the family on timings of one GPU.

    `kind` (of KINDS) says how the problems are divided: "folds" into FOLDS folds; "llm" leaves out
    one named transformer at a time; "sizes" leaves out the tenth of the problems with the most
    work. Problems that differ only in type or layout are on one side (problems.splits). `begins` is
    called with the parts' names.

    Raises TrainingError where there is no part, or too little to fit to or to judge on.
    """
    one = one_environment(table)
    parts = KINDS[kind](one)
    if not parts:
        raise TrainingError(
            "None of the problems with timings is a layer of a named transformer; collect some "
            "(--source transformers), or divide the problems with --cross-validate folds."
        )
    begins([part.name for part in parts])
    tasks = (
        FitTask(learnable(part.learned), family, settings=settings, name=part.name)
        for part in parts
    )
    judged: dict[str, Report] = {}
    for part, (task, members) in zip(parts, fits.run(tasks, report), strict=True):
        learned = task.learned
        environment = one.first_environment
        manifest = Manifest(
            name="part", family=family, hardware=environment.hardware,
            coverage=Coverage.make(learned), data=Data(),
        )  # fmt: skip
        predictor = Predictor(Artifact(manifest, members))
        judged[part.name] = evaluate(part.judged, predictor, name=_MODEL, unseen=True, seen=learned)
    return CrossValidation(kind, family, judged)
