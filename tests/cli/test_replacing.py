"""What a command may write over: a new file, or one of the kind that it writes, whole; never what
it reads, a store in use, or what is no file."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from diode_engine import atomic
from diode_engine.cli import lookup_table
from diode_engine.cli.options import StoreType
from diode_engine.core.problem import Problem
from diode_engine.problems.sources import write_shapeset
from diode_engine.store import Store, read_dataset, soundness, write_dataset
from tests.cli.conftest import every_command, execute, make_timings
from tests.store.conftest import as_rows

# The words of each command that writes a file where the user says, and the file's name. In the
# words, {target} is that file and {store} a store; {dataset}, {many}, {shapeset}, {solution} and
# {workflow} can be read.
WRITERS = {
    "data export": ("a.json", "data export {target} --store {store}"),
    "data merge": ("a.json", "data merge {dataset} --output {target}"),
    "collect": ("a.json", "collect --problems 1 --store {store} --output {target}"),
    "collect-shapeset": ("a.json", "collect-shapeset {shapeset} --store {store} --output {target}"),
    "create-validation": ("a.json", "create-validation --store {store} --output {target}"),
    "draw-problems": ("a.json", "draw-problems {target} --store {store} --problems 2"),
    "train": (
        "a.zip",
        "train --store {store} --dataset {many} --model {target} --family trees --rounds 2",
    ),
    "validate-max-autotune": (
        "a.json",
        "validate-max-autotune --max-autotune-solution {solution} --dataset {dataset} --all "
        "--output {target}",
    ),
    "capture": ("a.json", "capture -o {target} -- {python} -c 'open(\"it-ran\", \"w\")'"),
    "freeze": ("a.toml", "freeze -o {target} -- {python} -c 'open(\"it-ran\", \"w\")'"),
    "report": ("a.html", "report --html {target} --file {report}"),
    "tune": ("a.md", "tune -o {target} --store {store}"),
    "validate": ("a.svg", "validate --figure {target} --store {store} --all"),
    "validate-model": ("a.svg", "validate-model --figure {target} --store {store} --all"),
    "export-lookup-table": (
        "a.json",
        "export-lookup-table {target} --file {shapeset} --hardware nvidia-h200",
    ),
    "models export": ("a.zip", "models export tripled {target} --replace"),
    "db backup": ("a.db", "db backup {target} --store {store} --replace"),
    "db copy": ("a.db", "db copy {store} {target}"),
    "workflow": ("a.txt", "workflow {workflow}"),
}  # fmt: skip
# Files that a command reads, or a store that it adds to, though click does not ask that they exist.
READ = {
    ("data import", "files"), ("data merge", "files"), ("data verify", "files"),
    ("demo", "store"), ("models import", "index"), ("models list", "index"),
    ("models promote", "dataset"), ("models register", "path"), ("predict", "dataset"),
    ("train", "datasets"), ("validate", "dataset"), ("validate-max-autotune", "dataset"),
    ("validate-model", "dataset"),
}  # fmt: skip

each = pytest.mark.parametrize("words", list(WRITERS))


def _is_output(words, param):
    kind = param.type
    if not isinstance(kind, click.Path) or (isinstance(kind, StoreType) and param.name != "target"):
        return False
    return not kind.exists and (words, param.name) not in READ


def test_each_command_that_writes_a_file_is_here():
    found = {
        words
        for words, command in every_command()
        for param in command.params
        if _is_output(words, param)
    }
    assert found | {"workflow"} == set(WRITERS)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """The folder of what commands read, which no test changes."""
    folder = tmp_path_factory.mktemp("read")
    problems = [Problem.make("mm", m, 64, 512, "bfloat16") for m in (24, 48)]
    write_shapeset(problems, folder / "shapes.json", "a test")
    write_dataset(make_timings(60), folder / "many.json")
    return folder


@pytest.fixture
def write(run, store, dataset, model, solution, read, tmp_path, monkeypatch):
    """Runs a command of WRITERS, so that it writes to this file."""
    monkeypatch.chdir(tmp_path)
    run("models", "register", model)
    found = solution()

    def _write(words, target):
        workflow = tmp_path / "steps.toml"
        workflow.write_text(
            f'store = "{store}"\n[[step]]\nrun = "data stats"\noutput = "{target}"\n'
        )
        line = WRITERS[words][1].format(
            target=target, store=store, dataset=dataset, shapeset=read / "shapes.json",
            workflow=workflow, solution=found, many=read / "many.json",
            python=sys.executable,
            report=Path(__file__).parents[1] / "reports" / "program.json",
        )  # fmt: skip
        return run(*shlex.split(line))

    return _write


def _content(folder):
    names = (".db", ".json", ".svg", ".md", ".zip", ".txt", ".html")
    return {p: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name.endswith(names)}


def refused(*_, **__):
    raise PermissionError(13, "Permission denied")


@each
@pytest.mark.parametrize(
    "what", ["another kind", "program", "fifo", "folder missing", "folder", "refused"]
)
def test_what_a_command_may_not_write_over_is_as_it_was(
    write, words, tmp_path, store, dataset, monkeypatch, what
):
    """With `refused`, no file can be made in the folder."""
    if (words, what) == ("workflow", "program"):
        pytest.skip("a step's output can be any text")
    target = tmp_path / WRITERS[words][0]
    if what == "program":
        target.write_text("import torch\n")
    elif what == "another kind":  # than the command writes
        target.write_bytes((dataset if words.startswith("db ") else store).read_bytes())
    elif what == "fifo":
        os.mkfifo(target)
    elif what == "folder":
        target.mkdir()
    elif what == "folder missing":
        target = tmp_path / "none" / target.name
    else:
        monkeypatch.setattr(atomic, "_open_beside", refused)
        monkeypatch.setattr(Path, "mkdir", refused)
    before = _content(tmp_path)
    ran = write(words, target)
    assert ran.code in ((1,) if what == "refused" else (1, 2)), ran
    assert ran.out == ""
    assert target.name in ran.err
    assert "did not expect" not in ran.err
    assert _content(tmp_path) == before
    assert not (tmp_path / "it-ran").exists()
    assert what != "fifo" or stat.S_ISFIFO(target.stat().st_mode)
    if what == "refused":
        assert f"{target} cannot be written: Permission denied" in ran.err
        assert not target.exists()
    else:
        assert not list(tmp_path.glob(".unfinished-*"))


@pytest.mark.parametrize(
    "words", sorted(set(WRITERS) - {"tune", "collect", "collect-shapeset", "create-validation"})
)
def test_a_file_of_its_own_kind_is_replaced(write, words, tmp_path, monkeypatch):
    """`tune` and the commands that collect would need a GPU."""
    # tests/cli/test_lookup_table.py asks Inductor.
    monkeypatch.setattr(lookup_table, "_answers", lambda question, total: [{}] * total)
    if words in ("capture", "freeze"):
        pytest.skip("what it writes needs Inductor: tests/inductor_nogpu")
    target = tmp_path / WRITERS[words][0]
    first = write(words, target)
    assert first.code == 0, first.err
    assert target.is_file()
    again = write(words, target)
    if words == "db copy":
        again.says(1, "name a new file")
    else:
        assert again.code == 0, again.err


def test_the_report_of_an_earlier_step_is_replaced(write, tmp_path):
    """`report --json` as a step of a workflow writes a program's report."""
    target = tmp_path / "a.txt"
    shutil.copy(Path(__file__).parents[1] / "reports" / "program.json", target)
    ran = write("workflow", target)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    "line",
    [
        "data merge {dataset} --output {dataset}",
        "draw-problems {shapeset} --dataset {shapeset} --problems 2 --store {store}",
        "create-validation --shapeset {dataset} --output {dataset} --store {store}",
        "train --dataset {dataset} --model {dataset} --store {store}",
        "validate-max-autotune --max-autotune-solution {shapeset} --output {shapeset}",
        "collect --file {dataset} --output {dataset} --store {store}",
        "db backup {store} --store {store} --replace",
        "db copy {store} {store}",
        "data export {link} --store {store}",
        "workflow {workflow}",
    ],
)
def test_what_is_read_is_not_replaced(run, store, dataset, read, tmp_path, line):
    shapeset, link, workflow = (tmp_path / name for name in ("s.json", "l.json", "w.toml"))
    shutil.copy(read / "shapes.json", shapeset)
    link.symlink_to(store)
    workflow.write_text(
        f'store = "{store}"\n[[step]]\nrun = "data stats"\noutput = "{workflow.name}"\n'
    )
    before = _content(tmp_path), workflow.read_bytes()
    ran = run(*line.format(
        dataset=dataset, shapeset=shapeset, store=store, link=link, workflow=workflow
    ).split())  # fmt: skip
    assert ran.code in (1, 2), ran
    assert (_content(tmp_path), workflow.read_bytes()) == before
    assert "did not expect" not in ran.err


# -- the files beside a store ----------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from diode_engine.store import Store, import_dataset
store = Store.open(sys.argv[1])
import_dataset(store, sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(tmp_path):
    """A store that a process was killed in after its commit: the timings are in the -wal."""
    path, other = tmp_path / "killed.db", tmp_path / "other.json"
    write_dataset(make_timings(20, name="NVIDIA H100"), other)
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path), str(other)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.with_name("killed.db-wal").stat().st_size
    return path


@pytest.mark.parametrize("left", ["whole", "damaged", "only what was beside it"])
def test_a_backup_replaces_a_store_with_what_is_beside_it(run, store, killed, left):
    if left == "only what was beside it":
        killed.unlink()
    elif left == "damaged":
        content = killed.read_bytes()
        killed.write_bytes(content[:100] + b"\xff" * (4096 - 100) + content[4096:])
    ran = run("db", "backup", killed, "--store", store, "--replace")
    assert ran.code == 0, ran.err
    assert soundness.check(killed).problems == ()
    with Store.open(killed) as opened:
        assert opened.stats().timings == 48


@pytest.mark.parametrize("line", ["db copy {store} {killed}", "db backup {killed} --store {store}"])
def test_what_is_left_beside_a_new_store_is_not_played_into_it(run, store, killed, line):
    killed.unlink()
    ran = run(*line.format(store=store, killed=killed).split())
    ran.says(1, "killed.db-wal")
    assert not killed.exists()


def test_a_store_in_use_is_not_replaced(run, store, dataset):
    used = store.with_name("used.db")
    assert run("data", "import", dataset, "--store", used).code == 0
    with Store.open(used, read_only=True) as reader:
        assert reader.stats().timings == 48
        before = used.read_bytes()
        run("db", "backup", used, "--store", store, "--replace").says(1, "in use")
        assert used.read_bytes() == before
    assert run("db", "backup", used, "--store", store, "--replace").code == 0


# -- damaged stores --------------------------------------------------------------------------------


def _overwrite(path, start, data):
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "timings deleted": lambda path: execute(path, "DELETE FROM timings WHERE candidate % 2"),
    "a time changed": lambda path: execute(path, "UPDATE timings SET min_us = min_us / 3"),
    "a problem changed": lambda path: execute(
        path, 'UPDATE problems SET "M" = "M" + 1 WHERE id = 1'
    ),
    "a reference lost": lambda path: execute(path, "DELETE FROM candidates WHERE id = 1"),
    "a page lost": lambda path: _overwrite(path, path.stat().st_size - 4096, bytes(4096)),
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
@pytest.mark.parametrize(
    "line",
    [
        "db backup {target}.db --store {store} --replace",
        "db backup {folder}/new.db --store {store}",
        "db copy {store} {folder}/new.db",
        "db vacuum --store {store}",
        "data export {target}.json --store {store}",
    ],
)
def test_a_damaged_store_replaces_nothing(run, store, dataset, tmp_path, damage, line):
    good = {tmp_path / "good.db": store.read_bytes(), tmp_path / "good.json": dataset.read_bytes()}
    for path, content in good.items():
        path.write_bytes(content)
    DAMAGE[damage](store)
    before = store.read_bytes()
    ran = run(*line.format(target=tmp_path / "good", store=store, folder=tmp_path).split())
    ran.says(1, str(store))
    assert "unfinished" not in ran.err
    assert "damaged" in ran.err
    assert "did not expect" not in ran.err
    assert {path: path.read_bytes() for path in good} == good
    assert store.read_bytes() == before
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("damage", sorted(set(DAMAGE) - {"a time changed", "a problem changed"}))
def test_the_counts_of_a_damaged_store_say_so(run, store, damage):
    DAMAGE[damage](store)
    ran = run("data", "stats", "--store", store)
    if damage == "emptied":  # as one that is being made
        ran.says(3, "only an empty file")
        assert not store.stat().st_size
    else:  # with the counts
        assert ran.code == 1
        assert "damaged" in ran.err


def _spoil_pages(path):
    pages = path.stat().st_size // 4096
    for page in range(pages // 4, pages, pages // 8):
        _overwrite(path, page * 4096, bytes(range(256)) * 16)


@pytest.mark.parametrize(
    "damage",
    [
        DAMAGE["timings deleted"],
        DAMAGE["a reference lost"],
        lambda path: os.truncate(path, path.stat().st_size * 7 // 8),
        lambda path: execute(path, "UPDATE runs SET state = ''"),
        _spoil_pages,
    ],
)
def test_what_can_be_read_of_a_damaged_store_goes_to_a_new_file(run, tmp_path, damage):
    written, store, file = make_timings(1000), tmp_path / "a.db", tmp_path / "a.json"
    with Store.open(store) as opened:
        opened.add(opened.start_run("collect", {}), written)
    damage(store)
    ran = run("data", "export", file, "--store", store, "--damaged")
    saved = as_rows(read_dataset(file))
    assert 1000 < len(saved) == ran.json()["timings"]
    assert set(map(str, saved)) <= set(map(str, as_rows(written)))
    assert f"damaged; {4000 - len(saved):,} timings that it counts were left out" in ran.err
    run("data", "export", file, "--store", store, "--damaged").says(1, "new file")


def test_a_store_of_which_nothing_can_be_read_is_nothing(run, store, tmp_path):
    execute(store, "DELETE FROM timings")
    ran = run("data", "export", tmp_path / "a.json", "--store", store, "--damaged")
    assert (ran.code, '"timings": 0' in ran.out) == (3, True)
