"""What all tests share: a data directory of their own, and the marker gpu; and
a PostgreSQL server for those that ask for one."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgresql_server import PostgresServer, missing

_BEGUN = pytest.StashKey[float]()  # when this process's tests began, in monotonic seconds


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--within", type=float, help="skip tests that have not begun after this many seconds"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    within = item.config.getoption("--within")
    if within is not None and time.monotonic() - item.config.stash[_BEGUN] > within:
        pytest.skip(f"not begun within {within:.0f} s")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch finds no GPU here"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many of the documentation's blocks were run (tests/docs/test_blocks.py)."""
    reports = [r for state in ("passed", "failed") for r in terminalreporter.getreports(state)]
    if ran := [n for r in reports for name, n in r.user_properties if name == "blocks"]:
        terminalreporter.write_line(f"{sum(ran)} blocks of code in {len(ran)} pages were run.")


@pytest.fixture(autouse=True)
def diode_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Diode's data directory, empty: no test reads or writes the user's own."""
    home = tmp_path / "diode-home"
    monkeypatch.setenv("DIODE_HOME", str(home))
    for name in ("DIODE_STORE", "DIODE_DEBUG", "DIODE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(autouse=True)
def _all_is_logged() -> None:
    """A command that ran before, in this process, may have been told to be quiet."""
    logging.getLogger("diode_engine").setLevel(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def _new_stores_are_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes a new store in a file as a copy of another new one, since the migrations of each would
    take 0.1 s. tests/store/test_database.py tests the migrations."""
    if "diode_engine.store" not in sys.modules:
        yield
        return
    from diode_engine.store import Store
    from diode_engine.store.backends.backend import Backend
    from diode_engine.store.backends.sqlite import SqliteBackend

    made = tmp_path_factory.mktemp("new") / "diode.db"
    Store.open(made).close()

    def copy(backend: SqliteBackend) -> None:
        if backend.location.stat().st_size:
            Backend.migrate(backend)
        else:
            shutil.copyfile(made, backend.location)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteBackend, "migrate", copy)
        yield


@pytest.fixture
def nothing_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No models but those that a test registers."""
    monkeypatch.setattr("diode_engine.paths.shipped_dir", lambda: tmp_path / "shipped")


def pytest_configure(config: pytest.Config) -> None:
    """A run that was started in the background or under nohup ignores these signals, and so would
    every process that a test starts, and sends them to."""
    config.stash[_BEGUN] = time.monotonic()
    for ignored, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(ignored) is signal.SIG_IGN:
            signal.signal(ignored, usual)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this process's tests."""
    if why := missing():
        pytest.skip(why)
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    """The server, with its password where libpq looks for it."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGPASSWORD", postgres_server.password)
    return postgres_server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, without a password."""
    name = f"test_{secrets.token_hex(6)}"
    postgres.execute(f"CREATE DATABASE {name}")
    yield postgres.url(name)
    postgres.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def store_to_copy(postgres_server: PostgresServer) -> str:
    """The name of a database with an empty store in it, which others are made from."""
    from diode_engine.store import Store

    at = f"diode:{postgres_server.password}@127.0.0.1:{postgres_server.port}"
    postgres_server.execute("CREATE DATABASE empty_store")
    Store.open(f"postgresql+psycopg://{at}/empty_store").close()
    return "empty_store"


def _new_store(request: pytest.FixtureRequest, folder: Path) -> Iterator[str | Path]:
    if request.param == "file":
        yield folder / "folder" / "diode.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("store_to_copy")
    name = f"test_{secrets.token_hex(6)}"
    server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url(name)
    server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | Path]:
    """Where an empty store can be opened: each test that asks for it is of both kinds."""
    if request.param == "server":
        request.getfixturevalue("postgres")  # its password
    yield from _new_store(request, tmp_path)


@pytest.fixture(scope="module", params=["file", "server"])
def place_of_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str | Path]:
    """As `place`, of all tests of a module; the URL has the password in it."""
    for where in _new_store(request, tmp_path_factory.mktemp("module")):
        if isinstance(where, str):
            password = request.getfixturevalue("postgres_server").password
            where = where.replace("@", f":{password}@")
        yield where
