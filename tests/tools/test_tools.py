"""The repository's own tools: sizes beside budgets, refused phrases, the tests near a change."""

import pytest

from tools import nearest_tests, phrases, size


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nThe rooms of the code", 2),
        ("# fits of at most so\n#: many steps", 1),
        ("def told(self) -> None: ...", 1),
    ],
)
def test_a_refused_phrase_is_found_at_its_line(text, line):
    found, *_ = phrases.find_phrases("diode_engine/a.py", text)
    assert found.startswith(f"diode_engine/a.py:{line}: ")


@pytest.mark.parametrize("text", ["There is room for five.", "def is_told() -> bool: ..."])
def test_a_plain_phrase_is_not_refused(text):
    assert not [*phrases.find_phrases("diode_engine/a.py", text)]


def test_sizes_are_counted_by_package_and_compared_with_the_budget(tmp_path, monkeypatch, capsys):
    (tmp_path / "engine" / "store").mkdir(parents=True)
    (tmp_path / "engine" / "store" / "a.py").write_text("1\n\n2\n")
    (tmp_path / "docs" / "notes").mkdir(parents=True)
    (tmp_path / "docs" / "page.md").write_text("four words are here")
    (tmp_path / "docs" / "commands.md").write_text("generated")
    (tmp_path / "docs" / "notes" / "a.md").write_text("a note")
    monkeypatch.setattr(size, "ROOT", tmp_path)
    for budget, code in ((3, 0), (2, 1)):
        (tmp_path / "pyproject.toml").write_text(
            f"[tool.diode.size]\nengine = {budget}\nguide = 4\n"
        )
        assert size.main() == code
    said = capsys.readouterr().out
    assert "engine: 3 lines of 2 (1 above)" in said
    assert "        3  store" in said
    assert "guide: 4 words of 4 (0 left)" in said


def test_the_nearest_tests_come_first():
    tests = {
        "tests/test_other.py": "from diode_engine.store import Store",
        "tests/store/test_rows.py": "",
        "tests/test_by_package.py": "from diode_engine.store import rows",
        "tests/test_uses.py": "from diode_engine.store.rows import Row",
        "tests/gpu/test_rows.py": "",
        "tests/test_changed.py": "",
    }
    nearest = nearest_tests.nearest_tests(
        ["diode_engine/store/rows.py", "tests/test_changed.py"], tests
    )
    assert nearest == [
        "tests/test_changed.py", "tests/store/test_rows.py", "tests/test_by_package.py",
        "tests/test_uses.py", *nearest_tests.CORE,
    ]  # fmt: skip
    assert all((nearest_tests.ROOT / test).is_file() for test in nearest_tests.CORE)
