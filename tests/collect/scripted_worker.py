"""A worker without a GPU: speaks the real protocol, and does to some candidates what GPUs do.

The environment variable DIODE_SCRIPT holds JSON: the candidates it offers, and what happens
to which of them ("crash", "hang", or the name of a failure); all others take `time_us`.
"""

import json
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from diode_engine.collect import protocol
from diode_engine.hardware import H200, Environment
from diode_engine.problem import Candidate, Failure, Timing


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    script = json.loads(os.environ["DIODE_SCRIPT"])
    if script.get("log"):
        with Path(script["log"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
    if script.get("dead_on_arrival"):
        sys.exit("no GPU today")
    environment = Environment(H200, "", "test", "test")
    connection.send_bytes(protocol.pack({"environment": environment.to_dict()}))
    while True:
        try:
            request = protocol.unpack(connection.recv_bytes())
        except EOFError:
            return
        if request["problem"]["K"] == 13:
            connection.send_bytes(protocol.pack({"refused": "thirteen"}))
        elif "candidates" not in request:
            offered = script["offered"]
            default = offered[: script.get("default", 2)]
            connection.send_bytes(protocol.pack({"offered": offered, "default": default}))
        else:
            answer(connection, request, script)


def answer(connection: Connection, request: dict, script: dict) -> None:
    for index, fields in enumerate(request["candidates"]):
        connection.send_bytes(protocol.pack({"begin": index}))
        fate = script["fates"].get(str(Candidate.from_dict(fields)))
        if fate == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == "hang":
            signal.pause()
        timing = Timing(min_us=script["time_us"], median_us=script["time_us"], repeats=7)
        if fate is not None:
            timing = Timing(failure=Failure(fate))
        connection.send_bytes(protocol.pack(protocol.timed(index, timing, fate or "")))
    connection.send_bytes(protocol.pack({"done": True}))


if __name__ == "__main__":
    main()
