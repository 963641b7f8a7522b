"""Compilers that crash, hang or are killed; and the folder that they fill."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from diode_engine.collect.binaries import Binaries, Unbuilt
from diode_engine.collect.processes.compiler_pool import CompilerPool
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure
from diode_engine.errors import CollectionError
from diode_engine.inductor.lowering.kernel_class import class_of
from tests.collect.scripted_compiler import binary
from tests.samples import tile

COMMAND = (sys.executable, str(Path(__file__).parent / "scripted_compiler.py"))
PROBLEM = Problem.make("mm", 2048, 2048, 2048, "bfloat16")
CLASSES = [class_of(PROBLEM, tile(64, 64, 64, s, w)) for s in (1, 2, 3, 4, 5) for w in (2, 4)]


@pytest.fixture
def binaries(tmp_path):
    return Binaries(tmp_path / "binaries", Environment(H200, "", "test", "test"))


@pytest.fixture
def script(monkeypatch, tmp_path):
    log = tmp_path / "compiled"

    def write(fates=None, **more):
        fates = {str(cls.candidate): fate for cls, fate in (fates or {}).items()}
        value = {"log": str(log), "fates": fates, **more}
        monkeypatch.setenv("DIODE_COMPILER_SCRIPT", json.dumps(value))
        return log

    return write


def compiler_pool(binaries, workers=2, **more):
    return contextlib.closing(CompilerPool(binaries, workers, command=COMMAND, **more))


def compile_all(compilers, classes):
    return [compiled.result() for compiled in compilers.order(classes)]


def test_each_class_is_compiled_once(binaries, script):
    log = script()
    with compiler_pool(binaries) as compilers:
        assert not compilers.has(CLASSES[0].key)
        compilers.order(CLASSES)
        compile_all(compilers, CLASSES[:3])
        compile_all(compilers, CLASSES)
    assert [binaries.get(cls) for cls in CLASSES] == [binary(cls) for cls in CLASSES]
    assert len(log.read_text().splitlines()) == len(CLASSES)
    with compiler_pool(binaries) as compilers:  # the next run finds them
        assert all(compilers.has(cls.key) for cls in CLASSES)
        compile_all(compilers, CLASSES)
    assert len(log.read_text().splitlines()) == len(CLASSES)


def test_a_class_that_is_done_while_another_order_looks_for_it_is_compiled_once(
    binaries, script, monkeypatch
):
    """The second order finds no binary; before it goes on, the first one is done, if it can be."""
    log = script()
    with compiler_pool(binaries) as compilers:
        [first] = compilers.order(CLASSES[:1])
        look = binaries.missing

        def missing(classes):
            found = [*classes] if not first.done() else look(classes)
            if not compilers._lock.locked():
                first.result()
            return found

        monkeypatch.setattr(binaries, "missing", missing)
        compile_all(compilers, CLASSES[:1])
        first.result()
    assert len(log.read_text().splitlines()) == 1


def test_who_stops_waiting_for_a_class_does_not_cancel_it_for_others(binaries, script):
    script()
    with compiler_pool(binaries) as compilers:
        [ordered] = compilers.order(CLASSES[:1])
        assert not ordered.cancel()
        ordered.result()


def test_a_class_that_ends_compilers_is_a_failure_and_the_rest_are_built(binaries, script):
    fates = {2: "crash", 5: "hang", 7: "crash once", 9: "nonsense"}
    script({CLASSES[i]: fate for i, fate in fates.items()})
    with compiler_pool(binaries, deadline=1.0) as compilers:
        compile_all(compilers, CLASSES)
    found = [binaries.get(cls) for cls in CLASSES]
    assert [i for i, f in enumerate(found) if isinstance(f, Unbuilt)] == [2, 5, 9]
    assert [found[i].failure for i in (2, 5, 9)] == [
        Failure.CRASH, Failure.TIMEOUT, Failure.CRASH
    ]  # fmt: skip


@pytest.mark.parametrize("why", ["no compiler today", "all of it is used"])
def test_a_fault_of_all_compilers_or_of_the_pool_ends_every_order(
    binaries, script, monkeypatch, why
):
    def fails(*_: object) -> None:
        raise MemoryError("all of it is used")

    script(dead_on_arrival=why == "no compiler today")
    monkeypatch.setattr(CompilerPool, "_compile", fails)
    with compiler_pool(binaries) as compilers:
        for _ in range(2):
            with pytest.raises(CollectionError, match=why):
                compile_all(compilers, CLASSES)


def test_a_killed_compiler_loses_nothing(binaries, script):
    log = script({CLASSES[0]: "hang"})
    with compiler_pool(binaries, workers=1) as compilers:
        compilers.order(CLASSES)
        while not log.exists() or not log.read_text().endswith("\n"):
            os.sched_yield()
        script()
        os.kill(int(log.read_text().split()[0]), signal.SIGKILL)
        compile_all(compilers, CLASSES)
    assert not binaries.missing(CLASSES)
    assert not any(isinstance(binaries.get(cls), Unbuilt) for cls in CLASSES)


def test_leaving_the_pool_ends_its_processes_and_its_orders_and_fails_no_class(binaries, script):
    log = script({CLASSES[0]: "hang"})
    with compiler_pool(binaries, workers=1) as compilers:
        [ordered] = compilers.order(CLASSES[:1])
        while not log.exists() or not log.read_text().endswith("\n"):
            os.sched_yield()
        os.kill(int(log.read_text().split()[0]), signal.SIGKILL)
        while log.read_text().count("\n") < 2:  # it is tried for the last time
            os.sched_yield()
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text().split()[-2]), 0)
    with pytest.raises(CollectionError):
        ordered.result()
    assert binaries.get(CLASSES[0]) is None


def test_an_order_of_nothing_is_ready(binaries, script):
    script()
    with compiler_pool(binaries) as compilers:
        assert compilers.order([]) == []


def test_what_was_not_built_is_remembered(binaries):
    for reason in (Failure.OUT_OF_RESOURCES, None):
        binaries.put(CLASSES[0], Unbuilt(reason, "why"))
        assert binaries.get(CLASSES[0]) == Unbuilt(reason, "why")
        assert not binaries.missing(CLASSES[:1])


def test_a_file_that_cannot_be_read_is_none(binaries):
    binaries.put(CLASSES[0], binary(CLASSES[0]))
    [path] = (p for p in binaries.folder.rglob("*") if p.is_file())
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"\xc1", b"\x01", b"\x80"):
        path.write_bytes(content)
        assert binaries.get(CLASSES[0]) is None


def test_another_toolchain_has_its_own_binaries(binaries):
    binaries.put(CLASSES[0], binary(CLASSES[0]))
    other = Binaries(binaries.root, Environment(H200, "", "test", "newer"))
    assert other.missing(CLASSES[:1]) == CLASSES[:1]
    driver = Binaries(binaries.root, Environment(H200, "600.1", "test", "test"))
    assert driver.get(CLASSES[0]) == binary(CLASSES[0])
