"""A worker without a GPU: speaks the real protocol, and does to some candidates what GPUs do.

The environment variable DIODE_SCRIPT holds JSON: the candidates it offers (null: some of
Inductor's), and what happens to which of them ("crash", "hang", "nonsense" said, or one of
NONSENSE, "sticky" for an error after which the device is lost to the process, "stop" and a file's
name: the first one writes its pid there and hangs, "kill parent" and a log, or the name of a
failure); all others take `time_us`, or, where that is null, a time by a rule that can be learned.
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
from diode_engine.collect.processes import children, protocol
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.timing import Failure, Timing
from diode_engine.inductor.lowering.kernel_class import shared_classes
from diode_engine.problems.spaces import exhaustive_space

NONSENSE = {
    "out of turn": {"timing": 10**6},
    "unknown": {"weather": "fine"},
    "below nothing": {"timing": None, "min_us": -1.0},
}


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
    gpu = f"uuid-{os.environ['CUDA_VISIBLE_DEVICES']}"
    connection.send_bytes(protocol.pack({"environment": environment.to_dict(), "gpu": gpu}))
    while True:
        try:
            request = protocol.unpack(connection.recv_bytes())
        except EOFError:
            return
        alone = len(request.get("candidates", ())) == 1
        if request["problem"]["K"] == 13 or (alone and script.get("refuses_one")):
            connection.send_bytes(protocol.pack({"refused": "thirteen"}))
        elif "candidates" not in request:
            offered = [Candidate.from_dict(fields) for fields in script["offered"] or ()]
            offered = offered or some_of(Problem.from_dict(request["problem"]))
            default = offered[: script.get("default", 2)]
            answers = (protocol.pack_candidates(each) for each in (offered, default))
            connection.send_bytes(
                protocol.pack(dict(zip(("offered", "default"), answers, strict=True)))
            )
        else:
            answer(connection, request, script, binaries)


def answer(connection: Connection, request: dict, script: dict, binaries: Binaries | None) -> None:
    candidates = [Candidate.from_dict(fields) for fields in request["candidates"]]
    fates = [script["fates"].get(str(candidate)) for candidate in candidates]
    if binaries is not None:
        problem = Problem.from_dict(request["problem"])
        classes = shared_classes(problem, candidates)
        assert not binaries.missing(cls for cls in classes if cls is not None)
        if len(fates) > 1 and "crash" in fates:
            os.kill(os.getpid(), signal.SIGKILL)
    for index, fate in enumerate(fates):
        if binaries is None or len(fates) == 1:
            connection.send_bytes(protocol.pack({"begin": index}))
        if fate == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "hang":
            signal.pause()
        if fate == "nonsense":
            connection.send_bytes(b"\xc1")
            signal.pause()
        if fate in NONSENSE:
            timing = protocol.timed(index, Timing(min_us=1.0), "")
            said = {name: v for name, v in NONSENSE[fate].items() if v is not None}
            odd = said if fate == "unknown" else timing | said
            connection.send_bytes(protocol.pack(odd))
            signal.pause()
        if fate and fate.startswith("kill parent "):
            with Path(fate.removeprefix("kill parent ")).open("a") as file:
                file.write(f"{os.getppid()}\n")
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        if fate and fate.startswith("stop "):
            fate = stop(Path(fate.removeprefix("stop ")))
        sticky = fate == "sticky"
        if sticky:
            fate = "illegal_access"
        us = script["time_us"] or by_rule(Problem.from_dict(request["problem"]), candidates[index])
        timing = Timing(min_us=us, median_us=us * script.get("uneven", 1.0), repeats=7)
        if fate is not None:
            timing = Timing(failure=Failure(fate))
        connection.send_bytes(protocol.pack(protocol.timed(index, timing, fate or "")))
        if sticky:
            os._exit(1)
    connection.send_bytes(protocol.pack({"done": True}))


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
