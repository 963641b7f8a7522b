"""Fits in worker processes: the same as in one process, and what goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diode_engine.collect.processes.supervisor import Start, Supervisor, Worker
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models import network
from diode_engine.models.artifact import load_artifact
from diode_engine.models.fitting import FitProgress
from diode_engine.problems.exhaustive_space import exhaustive_space
from diode_engine.problems.splits import folds
from diode_engine.runs import find
from diode_engine.store import Store
from diode_engine.training import process_fits as module
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.cross_validation import cross_validate
from diode_engine.training.fit import fit, learnable
from diode_engine.training.fits import FitTask, LocalFits, by_members
from diode_engine.training.memory import available_bytes
from diode_engine.training.process_fits import ProcessFits
from diode_engine.training.run import TrainingRequest, train_from_store
from diode_engine.training.search import Trial, search
from diode_engine.training.settings import TrainingSettings
from tests.training.conftest import make_timings

SMALL = (
    TrainingSettings(lessons=40)
    .but("trees", rounds=12, learning_rate=0.3, max_depth=4, threads=1)
    .but("network", epochs=3, hidden=(8,))
    .but("distilled", epochs=3, hidden=(12, 8))
    .but("cascade", epochs=3, hidden=(12, 8))
)
ENDLESS = SMALL.but("trees", rounds=1_000_000, patience=1_000_000)


@pytest.fixture(autouse=True)
def _as_in_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The whole space, which worker processes know, and one thread, which they have."""
    import torch

    monkeypatch.setattr("diode_engine.training.lessons.exhaustive_space", exhaustive_space)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def learned() -> TimingTable:
    return learnable(make_timings(30))


class Told(dict[tuple[int, str], list[FitProgress]]):
    """What the fits reported."""

    def __call__(self, place: int, member: str, progress: FitProgress) -> None:
        self.setdefault((place, member), []).append(progress)


def workers() -> dict[int, int]:
    """The processes for fits on this machine, each with its parent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"training.fit_worker" in words:
            found[int(folder.name)] = parent
    return found


def workers_of(parent: int) -> set[int]:
    return {process for process, its_parent in workers().items() if its_parent == parent}


def test_a_model_is_that_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lessons too, in many jobs and however many processes do them, and every step that is
    reported. Each fit has one thread: on some processors the last bits follow the threads."""
    monkeypatch.setattr(module, "_threads", lambda free, ready: 1)
    monkeypatch.setattr(module, "_LESSONS", 32)
    # The last bits of a product depend on how many rows it has: a job has whole blocks of them.
    assert module._ANSWERS % network._BLOCK == 0
    monkeypatch.setattr(module, "_ANSWERS", network._BLOCK)
    learned = learnable(make_timings(800))
    tasks = [
        FitTask(part.learned, family, 3, SMALL)
        for part, family in zip(folds(learned, 2), ("distilled", "cascade"), strict=True)
    ]
    assert all(len(task.learned) > network._BLOCK for task in tasks)
    here = Told()
    one = [[m.to_bytes() for m in members] for _, members in LocalFits().run(tasks, here)]
    assert len(here) == 10
    for processes, asked in ((2, tasks), (4, tasks[:1])):
        there = Told()
        many = by_members(asked, ProcessFits(processes, min_rows=0), there)
        assert [[m.to_bytes() for m in members] for members in many] == one[: len(asked)]
        assert there == {key: told for key, told in here.items() if key[0] < len(asked)}


def test_a_training_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model, what it says of it, and its curves: of the model, its folds and that of all."""
    made, curves = [], []
    for i, fits in enumerate((None, ProcessFits(2, min_rows=0))):
        monkeypatch.setenv("DIODE_HOME", str(tmp_path / str(i)))
        with Store.open(tmp_path / f"{i}.db") as store:
            store.add(store.start_run("import", {}), make_timings(100))
            request = TrainingRequest("trees", settings=SMALL, seed=3, everything=True)
            model = train_from_store(store, request, fits=fits).model
            (run,) = [found.run for found in find(store) if found.run.kind == "train"]
            drawn = store.curves(run.id).items()
            curves.append({name: list(zip(*points, strict=True)) for name, points in drawn})
        manifest = model.manifest
        files = {f.name: f.read_bytes() for f in model.folder.iterdir() if f.suffix != ".json"}
        made.append((files, manifest.metrics, manifest.notes, manifest.data))
    assert made[0] == made[1]
    assert "confidence.safetensors" in made[0][0]
    assert curves[0] == curves[1]
    assert "trees-0, fold 1 of 3/objective" in curves[0]


def test_a_tuned_model_is_fitted_here_and_has_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIODE_HOME", str(tmp_path))
    monkeypatch.setattr("diode_engine.training.run.WRITE_SECONDS", 0.0)
    with Store.open(tmp_path / "diode.db") as store:
        store.add(store.start_run("import", {}), make_timings(30))
        made = train_from_store(store, TrainingRequest("trees", settings=SMALL)).model
        more = replace(SMALL, lessons=150)
        request = TrainingRequest(base=load_artifact(made.folder), settings=more)
        tuned = train_from_store(store, request, fits=ProcessFits(2, min_rows=0)).model
        run = max(find(store), key=lambda found: found.run.id).run
    assert tuned.manifest.data.base == made.manifest.identity
    assert run.progress is not None
    assert run.progress["rate"] > 0


def test_a_cross_validation_is_that_of_one_process(learned: TimingTable) -> None:
    found = [
        cross_validate(learned, "folds", family="trees", settings=SMALL, fits=fits).to_dict()
        for fits in (None, ProcessFits(2, min_rows=0))
    ]
    assert found[0] == found[1]


def test_a_search_is_that_of_one_process(learned: TimingTable, tmp_path: Path) -> None:
    told: list[list[Trial]] = [[], []]
    for i, fits in enumerate((None, ProcessFits(4, min_rows=0))):
        storage = tmp_path / f"{i}.db"
        search(learned, "trees", 2, storage, settings=SMALL, fits=fits, told=told[i].append)
    assert told[0] == told[1]
    assert len(told[0]) == 2


def test_what_cannot_be_fitted_is_the_same_sentence(learned: TimingTable) -> None:
    few = learned.take(learned.problem < 4)
    said = []
    for fits in (LocalFits(), ProcessFits(2, min_rows=0)):
        with pytest.raises(TrainingError) as raised:
            list(fits.run([FitTask(few, "trees")], Told()))
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert "too few" in said[0]


def test_what_a_process_raises_is_one_sentence(learned: TimingTable) -> None:
    wrong = SMALL.but("trees", max_depth=-3)
    with pytest.raises(TrainingError, match=r"^A fit failed: XGBoostError") as raised:
        list(ProcessFits(2, min_rows=0).run([FitTask(learned, "trees", settings=wrong)], Told()))
    assert "\n" not in str(raised.value)


def test_few_timings_are_fitted_in_this_process(
    learned: TimingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_Processes", None)
    ((_, (model,)),) = ProcessFits(4).run([FitTask(learned, "trees", settings=SMALL)], Told())
    assert model.to_bytes() == fit(learned, "trees", settings=SMALL)[0].to_bytes()
    ((_, (model,)),) = ProcessFits(1, min_rows=0).run(
        [FitTask(learned, "trees", settings=SMALL)], Told()
    )
    assert model.family == "trees"


def test_a_fit_that_is_cancelled_ends_its_processes(learned: TimingTable) -> None:
    running: set[int] = set()

    def stop(*_: object) -> None:
        running.update(workers_of(os.getpid()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(ProcessFits(3, min_rows=0).run([FitTask(learned, "ensemble", 0, ENDLESS)], stop))
    assert len(running) >= 2
    assert not running & workers().keys()


def test_a_fit_that_was_cut_short_goes_on(learned: TimingTable, tmp_path: Path) -> None:
    """From the step of its checkpoint; members that were finished are not fitted again."""
    settings = SMALL.but("distilled", epochs=90, patience=90)
    tasks = [FitTask(learned, "distilled", 0, settings)]
    checkpoints = Checkpoints(tmp_path / "kept", seconds=0)
    first: list[str] = []

    def stop(place: int, member: str, progress: FitProgress) -> None:
        first.append(member)
        if member == "distilled-4" and progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        by_members(tasks, ProcessFits(2, min_rows=0), stop, checkpoints)
    assert {"trees-0", "network-1", "network-2", "network-3", "distilled-4"} == set(first)
    assert list((tmp_path / "kept").glob("*.safetensors"))
    told = Told()
    again = Checkpoints(tmp_path / "kept", seconds=0)
    ((model,),) = by_members(tasks, ProcessFits(2, min_rows=0), told, again)
    assert {member for _, member in told} == {"distilled-4"}
    assert model.to_bytes() == fit(learned, "distilled", settings=settings)[0].to_bytes()
    ((kept,),) = by_members(tasks, ProcessFits(2, min_rows=0), Told(), again)
    assert kept.to_bytes() == model.to_bytes()
    again.clear()
    # A process that was killed while it wrote may have left an unfinished file.
    assert not list((tmp_path / "kept").glob("[!.]*"))


def test_a_process_that_is_killed_ends_the_fits_with_a_sentence(
    learned: TimingTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def kill(*_: object) -> None:
        for process in workers_of(os.getpid()):
            os.kill(process, signal.SIGKILL)

    with pytest.raises(TrainingError, match="was killed, perhaps for want of memory") as raised:
        list(ProcessFits(2, min_rows=0).run([FitTask(learned, "ensemble", 0, ENDLESS)], kill))
    assert "trees-0" in str(raised.value) or "network" in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_one_that_is_killed_while_it_starts_is_told_of_in_the_same_way(
    learned: TimingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Supervisor.start

    def killed(self: Supervisor, asked: Start) -> Worker:
        worker = start(self, asked)
        worker.process.kill()
        return worker

    monkeypatch.setattr(Supervisor, "start", killed)
    with pytest.raises(TrainingError, match="was killed, perhaps for want of memory"):
        list(ProcessFits(2, min_rows=0).run([FitTask(learned, "ensemble")], Told()))


_CROWDED = """
import sys
from pathlib import Path
from diode_engine.training import fit_jobs, fit_worker

do = fit_jobs.do

def crowded(job, caller):
    if job["job"] == "fit" and job["member"] == "network":
        seen = Path({folder!r}) / Path(job["made"]).name
        if {always} or not seen.exists():
            seen.touch()
            raise RuntimeError("CUDA error: out of memory")
    do(job, caller)

fit_jobs.do = crowded
fit_worker.main()
"""


def test_fits_that_the_gpu_has_no_memory_for_are_made_again_alone(
    learned: TimingTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[tuple[str, int]] = []
    begin = module._Processes.begin

    def noted(self: module._Processes, job: module._Job, threads: int) -> None:
        begin(self, job, threads)
        alone = len(self._supervisor.workers) if job.alone else 0
        beside.append((job.name, alone))

    monkeypatch.setattr(module._Processes, "begin", noted)
    worker = (sys.executable, "-P", "-c", _CROWDED.format(folder=str(tmp_path), always=False))
    task = FitTask(learned, "ensemble", 0, SMALL)
    ((_, members),) = ProcessFits(2, min_rows=0, command=worker).run([task], Told())
    one = fit(learned, "ensemble", settings=SMALL)
    assert [m.to_bytes() for m in members] == [m.to_bytes() for m in one]
    networks = [f"the fit network-{place}" for place in (1, 2, 3)]
    assert sorted(beside) == sorted(
        [("the fit trees-0", 0), *((n, 0) for n in networks), *((n, 1) for n in networks)]
    )

    worker = (sys.executable, "-P", "-c", _CROWDED.format(folder=str(tmp_path), always=True))
    with pytest.raises(TrainingError, match=r"^A fit failed: RuntimeError: CUDA error: out of"):
        list(ProcessFits(2, min_rows=0, command=worker).run([task], Told()))


def test_a_member_alone_is_that_of_one_process(learned: TimingTable) -> None:
    """One that learns from a teacher, and one that does not."""
    teacher = fit(learned, "ensemble", settings=SMALL)
    tasks = [
        FitTask(learned, "distilled", 0, SMALL, member=4, teacher=teacher),
        FitTask(learned, "distilled", 0, SMALL, member=2),
    ]
    here = [members[0].to_bytes() for _, members in LocalFits().run(tasks, Told())]
    there = ProcessFits(2, min_rows=0).run(tasks, Told())
    assert [members[0].to_bytes() for _, members in there] == here


def test_a_full_disk_is_named(learned: TimingTable) -> None:
    """The limit of a file's size stands for it."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "from diode_engine.training import fit_worker; fit_worker.main()"
    )
    command = (sys.executable, "-P", "-c", code)
    task = FitTask(learned, "trees", settings=SMALL)
    with pytest.raises(TrainingError, match=r"files in .* cannot be made: File too large.*TMPDIR"):
        list(ProcessFits(2, min_rows=0, command=command).run([task], Told()))


def test_processes_that_cannot_be_started_say_why(learned: TimingTable) -> None:
    command = (sys.executable, "-P", "-c", "raise SystemExit('no such thing')")
    with pytest.raises(TrainingError, match="cannot be started; one said: no such thing"):
        list(ProcessFits(2, min_rows=0, command=command).run([FitTask(learned, "trees")], Told()))


def test_no_process_outlives_its_parent() -> None:
    """Nor does the parent import torch."""
    code = (
        "import sys\n"
        "from tests.training.conftest import make_timings\n"
        "from diode_engine.training.fit import learnable\n"
        "from diode_engine.training.fits import FitTask\n"
        "from diode_engine.training.process_fits import ProcessFits\n"
        "from diode_engine.training.settings import TrainingSettings\n"
        "endless = TrainingSettings().but('trees', rounds=10**6, patience=10**6)\n"
        "def told(place, member, progress):\n"
        "    print(member, 'torch' in sys.modules, flush=True)\n"
        "task = FitTask(learnable(make_timings(60)), 'ensemble', 0, endless)\n"
        "list(ProcessFits(2, min_rows=0).run([task], told))\n"
    )
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        assert parent.stdout.readline().split()[1] == "False"
        started = workers_of(parent.pid)
        assert started
        parent.kill()
    until = time.monotonic() + 60
    while started & workers().keys():
        assert time.monotonic() < until


def test_what_does_not_fit_into_memory_waits(
    learned: TimingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_bytes", lambda: 0)
    most = 0
    begin = module._Processes.begin

    def counted(self: module._Processes, job: module._Job, threads: int) -> None:
        nonlocal most
        begin(self, job, threads)
        most = max(most, self.busy)

    monkeypatch.setattr(module._Processes, "begin", counted)
    tasks = [FitTask(learned, "trees", seed, SMALL) for seed in range(3)]
    assert len(list(ProcessFits(3, min_rows=0).run(tasks, Told()))) == 3
    assert most == 1


def test_the_memory_that_is_free(tmp_path: Path) -> None:
    system, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    assert available_bytes(system, group) > 1 << 60
    system.write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    assert available_bytes(system, group) == 4 << 20
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("3000000\n")
    assert available_bytes(system, group) == 4 << 20
    (group / "memory.max").write_text("4000000\n")
    assert available_bytes(system, group) == 1_000_000
    (group / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert available_bytes(system, group) == 1_500_000
