"""Commands with a store on a PostgreSQL server, and how little they say of its password."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from diode_engine.store import Store

URL = "postgresql+psycopg://ann:s3cr3t@127.0.0.1:1/diode"


def test_a_store_on_a_server_does_what_one_in_a_file_does(run, database, dataset, tmp_path):
    assert run("data", "stats", "--store", database).code == 3
    imported = run("data", "import", dataset, "--store", database)
    assert (imported.code, imported.json()["timings"]) == (0, 48)
    assert run("data", "import", dataset, "--store", database).code == 0
    assert run("data", "stats", "--store", database, "--json").json()["timings"] == 48
    assert len(run("data", "problems", "--store", database, "--json").json()) == 12
    assert run("runs", "list", "--store", database, "--json").json()[0]["id"] == 1
    doctor = run("doctor", "--store", database, "--json").json()
    assert database in json.dumps(doctor)
    for words in (("check",), ("upgrade",), ("vacuum",), ("backup", tmp_path / "b.db")):
        ran = run("db", *words, "--store", database)
        assert ran.code == 0, ran.err
    back = tmp_path / "back.db"
    ran = run("db", "copy", database, back)
    assert ran.code == 0
    assert "48 timings of 12 problems, 1 runs" in ran.out
    run("db", "copy", back, database).says(1, "is not empty; give another one, or add the timings")
    run("db", "copy", tmp_path / "none.db", tmp_path / "new.db").says(3, "There is no store at")
    assert not (tmp_path / "new.db").exists()
    assert run("db", "check", "--store", back).code == 0


def test_a_password_on_the_command_line_is_refused_and_not_repeated(run):
    for words in (
        ("data", "stats", "--store", URL), ("db", "copy", URL, "x.db"), ("db", "copy", "x.db", URL),
        ("data", "stats", f"--db={URL}"),
    ):  # fmt: skip
        ran = run(*words)
        ran.says(2, "PGPASSWORD")
        assert "s3cr3t" not in ran.out + ran.err


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://ann:s3cr3t@h/a/diode", "postgresql+psycopg://ann:s3cr3t#@h/diode",
        "postgresql+psycopg://ann:s3cr3t@x@h/diode", "postgresql+psycopg://ann:s3/cr3t@h/diode",
        "postgresql+psycopg://ann:1s3cr3t@h:x/diode", "postgresql+psycopg://ann:s3cr3t@h",
        "postgresql+psycopg://h/diode?password=s3cr3t", "mysql://ann:s3cr3t@h/diode",
        "postgresql://ann:s3cr3t@h/diode",
    ],
)  # fmt: skip
def test_a_malformed_url_is_refused_and_not_repeated(run, url, monkeypatch):
    monkeypatch.setenv("DIODE_STORE", url)
    ran = run("data", "stats")
    assert ran.code == 2
    assert "cr3t" not in ran.out + ran.err
    assert "postgresql+psycopg://USER@HOST" in ran.err or "PGPASSWORD" in ran.err


def test_a_password_of_the_environment_is_in_nothing_that_is_left(
    postgres, database, dataset, tmp_path, diode_home
):
    """A run is started in a process of its own, which is told the URL without the password."""
    environment = {
        **{name: v for name, v in os.environ.items() if not name.startswith("PG")},
        "DIODE_STORE": database.replace("@", f":{postgres.password}@"),
    }  # fmt: skip
    program = (
        "import sys\nfrom diode_engine import paths\nfrom diode_engine.runs import start, look\n"
        "from diode_engine.runs.process import is_alive\nfrom diode_engine.store import Store\n"
        "with Store.open(paths.store_location()) as store:\n"
        "    run = start(store, 'train', {'name': 'x'})\n"
        "    print(open(f'/proc/{run.process.pid}/cmdline').read().replace(chr(0), ' '))\n"
        "    import threading\n"
        "    [t.join() for t in threading.enumerate() if t.name.startswith('run ')]\n"
        "    print(look(store, run.id).to_dict())\n"
    )
    words = [sys.executable, "-m", "diode_engine", "--debug"]
    said = [
        subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        for command in (
            [*words, "-vv", "data", "import", str(dataset)],
            [sys.executable, "-c", program],
            [*words, "runs", "show", "2", "--json"],
            [*words, "train", "--family", "nonsense"],
        )
    ]
    assert said[0].returncode == 0, said[0].stderr
    assert f"--store={database}" in said[1].stdout
    assert json.loads(said[2].stdout)["state"] == "failed"  # there is too little to train on
    assert "timings" in json.loads(said[2].stdout)["message"]
    written = [path.read_text() for path in diode_home.rglob("*") if path.is_file()]
    assert any("Error" in text for text in written)  # the run's log
    rows = postgres.execute("SELECT runs::text FROM runs", database.rpartition("/")[2])
    for text in [*[s.stdout + s.stderr for s in said], *written, str(rows)]:
        assert postgres.password not in text


def test_who_has_no_psycopg_is_told_the_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "diode_engine.store.backends.postgresql", raising=False)
    ran = run("data", "stats", "--store", URL.replace(":s3cr3t", ""))
    ran.says(1, "psycopg", "with its extra postgres")
    assert len(ran.err.strip().splitlines()) == 1


def test_the_file_of_a_folder_cannot_name_a_server(run, tmp_path, monkeypatch, diode_home):
    monkeypatch.chdir(tmp_path)
    url = URL.replace(":s3cr3t", "")
    for content in (f'store = "{url}"\n', f'[data.stats]\nstore = "{url}"\n'):
        Path("diode.toml").write_text(content)
        ran = run("data", "stats")
        ran.says(3, "diode.toml is ignored")
        assert str(diode_home / "diode.db") in ran.err.replace("\n", "")
    diode_home.mkdir(exist_ok=True)
    (diode_home / "config.toml").write_text(f'store = "{url}"\n')
    assert "cannot be reached" in run("data", "stats").err


def test_a_workflow_has_its_store_on_a_server(run, database, dataset, tmp_path):
    file = tmp_path / "w.toml"
    file.write_text(f'store = "{database}"\n[[step]]\nrun = "data import {dataset}"\n')
    assert run("workflow", file).json()["state"] == "done"
    assert run("workflow", file).json()["state"] == "skipped"
    with Store.open(database) as store:
        assert store.stats().timings == 48


def test_this_machine_keeps_the_logs(database, diode_home):
    from diode_engine import paths
    from diode_engine.location import location_of

    where = paths.beside(location_of(database), "-logs")
    assert where.parent == diode_home / "servers"
