"""Defaults of options: files, then the environment, then the command line."""

from __future__ import annotations

import click
import pytest

from diode_engine.cli import settings
from tests.cli.conftest import every_command


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def planned(ran):
    return ran.json()["problems"]


def test_each_place_comes_before_the_one_below(run, here, diode_home, monkeypatch):
    plan = ("collect", "--source", "grid:m=1/64/128/256/512,n=64,k=64", "--plan")
    diode_home.mkdir(exist_ok=True)
    (diode_home / "config.toml").write_text("[collect]\nproblems = 5\nseed = 3\n")
    assert planned(run(*plan)) == 5
    (here / "diode.toml").write_text("[collect]\nproblems = 4\n")
    assert planned(run(*plan)) == 4
    monkeypatch.setenv("DIODE_COLLECT_PROBLEMS", "3")
    assert planned(run(*plan)) == 3
    assert planned(run(*plan, "--problems", "2")) == 2


def test_the_store_of_every_command(run, here, dataset, tmp_path, monkeypatch):
    said, other = tmp_path / "said.db", tmp_path / "other.db"
    (here / "diode.toml").write_text(f'store = "{said}"\n[data.problems]\nrows = 2\n')
    assert run("data", "import", dataset).code == 0
    assert said.is_file()
    assert len(run("data", "problems", "--json").json()) == 2
    monkeypatch.setenv("DIODE_STORE", str(other))
    assert run("data", "stats").code == 3
    assert run("data", "stats", "--db", said).code == 0


def test_an_options_own_name_counts(run, dataset, here, monkeypatch):
    named = planned(run("collect", "--plan", "--source", "grid:m=8/16,n=64,k=64"))
    (here / "diode.toml").write_text('[collect]\nsource = ["grid:m=8/16,n=64,k=64"]\n')
    assert planned(run("collect", "--plan")) == named < 300
    (here / "diode.toml").write_text('[collect]\nsource = ["odd"]\n')
    monkeypatch.setenv("DIODE_COLLECT_SOURCE", "grid:m=8,n=64,k=64 grid:m=16,n=64,k=64")
    assert planned(run("collect", "--plan")) == named
    monkeypatch.setenv("DIODE_DATA_STATS_JSON", "1")
    run("data", "import", dataset)
    assert run("data", "stats").json()["timings"] == 48
    monkeypatch.setenv("DIODE_VALIDATE_MODEL", "no-such-model")
    assert "no-such-model" in run("validate", "--all").err
    monkeypatch.setenv("DIODE_TRAIN_BATCH_SIZE", "many")
    assert run("train").code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[collect", "not valid TOML"),
        ("[colect]\n", "diode.toml has 'colect', which is neither a command nor"),
        ("[data]\nrows = 3\n", "'rows', which is not an option of `diode-engine data`"),
        ("data = 3\n", "[data] must be a table"),
        (
            '[data.problems]\nrows = "many"\n',
            "'many' is not a valid integer range. It is from a variable",
        ),
        (
            "[data.problems]\nrows = [1]\n",
            "[data.problems] rows is [1]; it must be a text or a number",
        ),
        ("[data.problems]\ndescending = []\n", "descending is []; it must be true or false"),
        ("store = {}\n", "store is {}; it must be a text or a number"),
        ('store = "a\\u0000b"\n', "a null character"),
        ("x = 1\n" * 100_000, "more than 262,144 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_is_told(run, here, text, said):
    (here / "diode.toml").write_text(text)
    run("data", "problems").says(2, said)
    assert run("--help").code == 0


def test_a_file_that_may_not_be_read_is_left_out(run, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(settings, "read_toml", refuse)
    ran = run("models", "list")
    assert ran.code == 0
    assert "config.toml is left out, since it cannot be read: Permission denied." in ran.err


def test_a_directory_does_not_widen_what_is_exposed(run, here, served, diode_home, monkeypatch):
    (here / "diode.toml").write_text(
        '[serve]\nhost = "0.0.0.0"\nport = 1\npublic-url = "http://evil.example"\n'
        'read-only = false\nstore = "of-here.db"\n[models.remove]\nyes = true\n'
    )
    diode_home.mkdir(exist_ok=True)
    (diode_home / "config.toml").write_text("[serve]\nread-only = true\nport = 8765\n")
    said = " ".join(run("serve").err.split())
    for name in ("host", "port", "public-url", "read-only"):
        assert f"{name} of [serve] in diode.toml is ignored" in said
    assert "yes of" not in said  # which is of another command
    said_of_it = " ".join(run("models", "remove", "mine").err.split())
    assert "yes of [models.remove] in diode.toml is ignored" in said_of_it
    assert "Others can reach" not in said
    (server,) = served
    assert (server.host, server.port) == ("localhost", 8765)
    assert server.public_url == "http://localhost:8765"
    assert str(here / "of-here.db") in server.command
    assert server.command.endswith(" --read-only")
    monkeypatch.setenv("DIODE_SERVE_HOST", "127.0.0.1")
    run("serve", "--port", "8766")
    assert (served[1].host, served[1].port) == ("127.0.0.1", 8766)


# Flags and files that a directory's file may set: it says what is done, not over what, for whom,
# or in whose name.
OPTIONS_OF_A_DIRECTORY = {
    "all", "again", "batch-invariant", "candidates", "card", "check", "cross-validate", "data-dir",
    "dataset",
    "descending", "direct", "file", "held-out", "json", "log-normal", "max-autotune-solution",
    "plan", "csv", "power-of-two", "shapes", "shapeset", "no-odd-sizes", "no-rectangular", "resume",
    "skip-collection", "skip-training",
    "skip-validation", "store",
    "db", "text",
}  # fmt: skip


def test_every_flag_and_file_is_the_users_or_a_directorys():
    seen: set[str] = set()
    for words, command in every_command():
        for option in command.params:
            flag_or_file = isinstance(option.type, click.Path) or getattr(option, "is_flag", False)
            if isinstance(option, click.Option) and flag_or_file:
                names = {spelling.lstrip("-") for spelling in option.opts}
                place = words.replace(" ", ".")
                # One that is in neither: may a directory that somebody else made set it?
                of_user = all(settings.is_users_only(name, place) for name in names)
                assert of_user or names <= OPTIONS_OF_A_DIRECTORY, (words, names)
                seen.update(names)
    assert {"replace", "yes", "read-only", "output", "store", "plan"} <= seen
    assert settings.is_users_only("ray", "collect")  # which cluster's answers are unpickled
