"""A worker without a GPU: answers as the real one, and does to some candidates what GPUs do.

The environment variable DIODE_SCRIPT holds JSON: the candidates it offers (null: some of
Inductor's), and what happens to which of them ("crash", "hang", "nonsense" or "another kind" of
answer, "alone" for a direct worker that does not time it beside others, "sticky" for an error after
which it dies of the next request, "stop" and a file's name: the first one writes its pid there and
hangs, "kill parent" and a log, or the name of a failure); all others take `time_us`, or, where that
is null, a time by a rule that can be learned.
The processes after the first `lives` find no GPU. With `refuses_one` a candidate alone is refused.
If it is started with a folder of binaries too, it is a direct worker: it times the candidates of
a request in turn, which must have been compiled.
"""

import contextlib
import json
import math
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from diode_engine.collect.binaries import Binaries
from diode_engine.collect.executor import Refusal, Result, SpaceAnswer, SpaceRequest
from diode_engine.collect.processes import children
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure, Timing
from diode_engine.inductor.lowering.kernel_class import shared_classes
from diode_engine.problems.spaces import exhaustive_space

broken = False  # whether the device is lost to this process


def main() -> None:
    children.end_with_parent()
    *direct, number = sys.argv[1:]
    connection = Connection(int(number))
    script = json.loads(os.environ["DIODE_SCRIPT"])
    if script.get("log"):
        log = Path(script["log"])
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(log.read_text().splitlines()) > script.get("lives", sys.maxsize):
            sys.exit("the GPU has fallen off the bus")
    if script.get("dead_on_arrival"):
        sys.exit("no GPU today")
    if script.get("hangs_on_arrival"):
        signal.pause()
    environment = Environment(H200, "", "test", "test")
    binaries = Binaries(Path(direct[0]), environment) if direct else None
    connection.send((f"uuid-{os.environ['CUDA_VISIBLE_DEVICES']}", environment))
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        problem, is_space = request.problem, isinstance(request, SpaceRequest)
        alone = not is_space and len(request.candidates) == 1
        if problem.K == 13 or (alone and script.get("refuses_one")):
            connection.send(Refusal("thirteen"))
        elif is_space:
            offered = [Candidate.from_dict(fields) for fields in script["offered"] or ()]
            offered = offered or some_of(problem)
            default = offered[: script.get("default", 2)]
            connection.send(SpaceAnswer(tuple(offered), tuple(default)))
        else:
            if binaries is not None:
                classes = shared_classes(problem, request.candidates)
                assert not binaries.missing(cls for cls in classes if cls is not None)
            assert alone or binaries is not None
            asked = request.candidates
            connection.send([result(connection, problem, c, alone, script) for c in asked])


def result(
    connection: Connection, problem: Problem, candidate: Candidate, alone: bool, script: dict
) -> Result | None:
    global broken
    fate = script["fates"].get(str(candidate))
    if broken or fate == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == "hang":
        signal.pause()
    if fate == "nonsense":
        connection.send_bytes(b"\xc1")
        signal.pause()
    if fate == "another kind":
        connection.send("an answer to something else")
        signal.pause()
    if fate and fate.startswith("kill parent "):
        with Path(fate.removeprefix("kill parent ")).open("a") as file:
            file.write(f"{os.getppid()}\n")
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    if fate and fate.startswith("stop "):
        fate = stop(Path(fate.removeprefix("stop ")))
    if fate == "alone" and not alone:
        return None
    if fate == "sticky":
        broken, fate = True, "illegal_access"
    if fate not in (None, "alone"):
        return Timing(failure=Failure(fate)), fate
    us = script["time_us"] or by_rule(problem, candidate)
    return Timing(min_us=us, median_us=us * script.get("uneven", 1.0), repeats=7), ""


def some_of(problem: Problem) -> list[Candidate]:
    """The library's kernels, and those of two tiles of Inductor's EXHAUSTIVE space."""
    tiles = {(128, 16, 128), (64, 64, 64)}
    return [
        c
        for c in exhaustive_space(problem)
        if c.is_extern or tuple(c.config.get(f"BLOCK_{size}") for size in "MNK") in tiles
    ]


def stop(file: Path) -> None:
    with contextlib.suppress(FileExistsError):
        with file.with_name(f"{file.name}.first").open("x"):
            pass
        whole = file.with_name(f"{file.name}.{os.getpid()}")
        whole.write_text(str(os.getpid()))
        whole.rename(file)
        signal.pause()


def by_rule(problem: Problem, candidate: Candidate) -> float:
    """Microseconds: worse the further BLOCK_M is from M."""
    block = int(str(candidate.config.get("BLOCK_M", 48)))
    off = abs(math.log2(block) - min(max(math.log2(problem.M), 4), 7))
    return 1 + problem.flops / 3e8 * (1 + off)


if __name__ == "__main__":
    main()
