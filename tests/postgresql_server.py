"""A temporary PostgreSQL server on this machine, for measurements and tests.

It has its own folder and port, listens only on loopback, and ends with the process that started it.
"""

from __future__ import annotations

import ctypes  # here and not later: the server's account may not be able to read Python's files
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

USER = "diode"
_FAST = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
)  # no data are kept


def missing() -> str | None:
    """Why no server can be started here; None where one can."""
    for program in ("initdb", "postgres"):
        if _program(program) is None:
            return f"PostgreSQL's {program} is not installed"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed (the extra postgres)"
    if os.geteuid() == 0 and _account() is None:
        return "PostgreSQL does not run as root, and this machine has no other user"
    return None


def _program(name: str) -> str | None:
    """The path of one of PostgreSQL's programs. Debian has them in a folder for each version."""
    known = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or next(map(str, known), None)


def _account() -> pwd.struct_passwd | None:
    return next((u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody")), None)


class PostgresServer:
    """A running server. `settings` are those of postgresql.conf. Its role diode has a password and
    all rights. Raises RuntimeError, with the server's output, where it does not start."""

    def __init__(self, *settings: str, durable: bool = False) -> None:
        self.password = secrets.token_hex(8)
        self._settings = (*settings, *(() if durable else _FAST))
        self._folder = Path(tempfile.mkdtemp(prefix="diode-postgres-"))
        account = _account() if os.geteuid() == 0 else None
        self._rights: dict[str, Any] = {}
        if account is not None:
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._rights = {
                "user": account.pw_uid, "group": account.pw_gid, "extra_groups": [],
            }  # fmt: skip
        try:
            secret = self._folder / "password"
            secret.write_text(self.password)
            secret.chmod(0o644)  # within a folder of the account's alone
            made = self._run(
                "initdb", "-D", self._data, "-U", USER, f"--pwfile={secret}", "-A",
                "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync",
            )  # fmt: skip
            if made.returncode:
                raise RuntimeError(f"initdb failed: {made.stdout}")
            self.port = free_port()
            self._process: subprocess.Popen[str] | None = None
            self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [_program(program) or program, *words], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, cwd="/", check=False, **self._rights,
        )  # fmt: skip

    def start(self) -> None:
        """Starts the server again after `stop`, at the same port."""
        settings = (
            "listen_addresses=127.0.0.1", "unix_socket_directories=", "log_min_messages=log",
            *self._settings,
        )  # fmt: skip
        self._process = subprocess.Popen(
            [_program("postgres") or "postgres", "-D", self._data, "-p", str(self.port),
             *(word for setting in settings for word in ("-c", setting))],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            cwd="/", preexec_fn=_end_with_parent, **self._rights,
        )  # fmt: skip
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if "ready to accept connections" in line:
                break
        else:
            raise RuntimeError(f"PostgreSQL did not start: {''.join(said)}")
        # Its later output has to be read, or the server would stop at a full pipe.
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    def stop(self) -> None:
        """Stops the server at once; connections are lost."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str = "postgres", *, user: str = USER) -> str:
        """The URL, without a password, which is in PGPASSWORD or is given."""
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> Sequence[tuple[Any, ...]]:
        """Executes statements outside of a transaction, as the role diode; returns the rows of the
        last one."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, dbname=database,
            autocommit=True,
        ) as connection:  # fmt: skip
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _end_with_parent() -> None:
    """Has Linux end the server, by a fast shutdown, where its starter is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG
