"""The timings of one training, split once: all its stages take their rows from this split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from diode_engine.core.hardware import Hardware
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.problems import splits
from diode_engine.training.trainable_rows import gpus_of, learnable, trainable_rows

MIN_HELD_OUT = 2  # problems to judge a model by


@dataclass(frozen=True, eq=False)
class TrainingSplit:
    """Rows of one device or several, with one torch and one Triton (`trainable_rows`), split as
    `splits.split` does."""

    learned: TimingTable  # the successful rows to learn from
    all_learnable: TimingTable  # these, and the successful rows of the held-out problems
    # All rows of the held-out problems, failed ones too: to choose a candidate that fails is a bad
    # choice.
    judged: TimingTable
    held_out_problems: int  # on which a model can be judged
    # How many successful timings are of other hardware, torch or Triton, by the names of these.
    left_out: Mapping[str, int]
    by: tuple[str, ...]  # the ways in which problems are held out (splits.HELD_OUT_BY)

    @classmethod
    def make(
        cls,
        table: TimingTable,
        hardware: str | None = None,
        by: Collection[str] = splits.HELD_OUT_BY,
    ) -> TrainingSplit:
        """The split of the table's timings on the GPU of this name (None: on all GPUs of one
        generation). Raises TrainingError as `trainable_rows` does, and where there are too few
        problems to judge a model on."""
        one = trainable_rows(table, hardware)
        all_learnable = learnable(one)
        learned, held_out = splits.split(all_learnable, by)
        problems = count_problems(held_out)
        if problems < MIN_HELD_OUT:
            raise TrainingError(
                f"Of {count_problems(all_learnable)} problems with timings {problems} are held "
                f"out, which is too few to judge a model by ({MIN_HELD_OUT} are needed): collect "
                "or import more."
            )
        judged = splits.split(one, by)[1]
        return cls(learned, all_learnable, judged, problems, _left_out(table, one), tuple(by))

    @property
    def hardware(self) -> Hardware:
        """The device with the most rows."""
        return gpus_of(self.all_learnable)[0]


def count_problems(table: TimingTable) -> int:
    """The number of problems with rows in the table."""
    return len(set(table.problem.tolist()))


def _left_out(table: TimingTable, one: TimingTable) -> dict[str, int]:
    kept = {one.environments[i] for i in set(one.environment.tolist())}
    counts = Counter(table.environment[table.failure == 0].tolist())
    left: Counter[str] = Counter()
    for place, count in counts.items():
        environment = table.environments[place]
        if environment not in kept:
            e = environment
            left[f"{e.hardware.name}, torch {e.torch}, Triton {e.triton}"] += count
    return dict(left.most_common())
