"""Print the lines and words of each package beside its budget; exit with 1 above a budget.

python tools/size.py

The budgets are the table [tool.diode.size] in pyproject.toml. Whoever raises one says why in the
commit.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Pages that are not the guide: the reference of commands, and the specifications of files.
# The measurement notes are in docs/notes/.
REFERENCES = ("commands.md", "dataset-format.md", "formats.md")


def count_lines(folder: Path) -> Counter[str]:
    """Return the lines of Python below `folder`, by the first folder or module under it."""
    lines: Counter[str] = Counter()
    for file in folder.rglob("*.py"):
        lines[file.relative_to(folder).parts[0]] += len(file.read_bytes().splitlines())
    return lines


def count_words(folder: Path) -> Counter[str]:
    """Return the words of each page of the guide in `folder`."""
    return Counter(
        {
            page.name: len(page.read_text(encoding="utf-8").split())
            for page in folder.glob("*.md")
            if page.name not in REFERENCES
        }
    )


def main() -> int:
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["diode"][
        "size"
    ]
    over = False
    for name, budget in budgets.items():
        parts = count_words(ROOT / "docs") if name == "guide" else count_lines(ROOT / name)
        total, unit = parts.total(), "words" if name == "guide" else "lines"
        over |= total > budget
        verdict = f"{total - budget:,} above" if total > budget else f"{budget - total:,} left"
        print(f"{name}: {total:,} {unit} of {budget:,} ({verdict})")
        for part, size in parts.most_common():
            print(f"  {size:7,}  {part}")
    if over:
        print("Above a budget: remove or merge code, or raise the budget in pyproject.toml.")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
