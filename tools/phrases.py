"""Refuse phrases and names that a reader has to guess: see docs/concepts.md for what to say.

python tools/phrases.py [FILE ...]

Looks through all tracked Python, Markdown and TOML files, or through these files. Prints each
phrase with its place and what to say instead; exits with 1 where there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEARCHED = ("*.py", "*.md", "*.toml", "*.yml", "Makefile")
# The files that quote the phrases, and what was written before the rule.
EXEMPT = ("tools/phrases.py", "tests/tools/test_tools.py", "docs/notes/changelog-0.1.md")

# What is refused (a regular expression), and what to say instead.
PHRASES = {
    r"how blind": "which results are held out",
    r"\bblind (problems|products|sets?|figures?)\b": "held-out",
    r"could not be told": "Could not ... (name what failed)",
    r"\b(of |by )?at most so many\b": "at most `count` (name the number)",
    r"\bhas done so many\b": "Record step `step` of at most `max_steps`",
    r"\bso it does there\b": "repeat the verb",
    r"\(by hand\)": "measured once; there is no script",
    r"\bwith these in view\b": "we looked at these results while tuning",
    r"\bDiode lets (it|them)\b": "Diode allows ... when",
    r"\bbeside_hook\b": "bypasses_hook",
    r"\btold: bool\b": "from_manifest",
    r"\btake_out\b": "uninstall",
    r"\bdef arrange\b": "install",
    r"\bsame command goes on\b": "run the command again to resume",
    r"\bis no \w+ by its name\b": "is not a ... file (expected ...)",
    r"\bis no dataset\b": "is not a dataset",
    r"\bhave it replaced\b": "pass --replace",
    r"\brooms\b|\bthe room of\b|\b(a|this|that|every|each|another) room\b": "package",
    r"\bchooses otherwise\b": "chooses another kernel than ...",
    r"\bIs told\b": "Callback(arguments) / Receive ...",
    r"\bships? no longer\b": "was removed",
    r"\bthe library's is what\b": "say who does what",
    r"\bare asked of\b|\bis what is (asked|taken|told)\b": "say who does what",
}
# Names of functions that are participles alone. The product's code only: tests may be terse.
PRODUCT = ("diode_engine/", "diode_app/", "benchmarks/", "docs/", "tools/")
PARTICIPLES = "again|asked|given|kept|left|made|of|seen|taken|told"
FUNCTION = re.compile(rf"\bdef (?:{PARTICIPLES})\(")


def tracked_files() -> list[str]:
    """Return the paths of the files to look through, from the repository's root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SEARCHED],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def find_phrases(name: str, text: str) -> Iterator[str]:
    """Yield one line for each refused phrase and name in the `text` of the file `name`."""
    for phrase, instead in PHRASES.items():
        # A phrase may go over the end of a line, also of a comment.
        pattern = phrase.replace(" ", r"(?: |\s*\n\s*(?:#:? ?)?)")
        for found in re.finditer(pattern, text):
            yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]!r}: say {instead}"
    if name.startswith(PRODUCT):
        for found in FUNCTION.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{name}:{line}: {found[0]!r}: begin the name with a verb"


def main(names: list[str]) -> int:
    found = []
    for name in names or tracked_files():
        if name not in EXEMPT:
            found += find_phrases(name, (ROOT / name).read_text(encoding="utf-8"))
    print("\n".join(found) or "No refused phrase.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
