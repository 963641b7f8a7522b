"""Takes the pictures of the dashboard: a problem of the shipped timings, and a program.

python docs/take_picture.py
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from diode_app.app import DiodeApp, create_app
from diode_app.data.overview import shipped_timings
from diode_app.data.programs import Source
from diode_app.screens.problem import ProblemScreen
from diode_app.screens.program import ProgramScreen
from diode_engine.store import Store, import_dataset
from diode_engine.store.query import problems

FOLDER = Path(__file__).resolve().parent
# The report of four layers, compiled for an H200 without having one.
REPORT = FOLDER.parent / "tests" / "reports" / "program.json"
QUERY = "op:mm dtype:bf16 m:16 layout:row/col k>=4096"  # a layer as it is met in decoding
SIZE = (132, 40)


def open_problem(app: DiodeApp) -> Any:
    with Store.open("diode.db") as store:
        for file in shipped_timings():
            import_dataset(store, file)
        row = problems(store, QUERY, sort="candidates", descending=True, limit=1)[0]
    return ProblemScreen(app.session, row.problem.key)


def open_program(app: DiodeApp) -> Any:
    Store.open("diode.db").close()
    return ProgramScreen(app.session, Source(REPORT))


PICTURES = {"program.svg": open_program, "dashboard.svg": open_problem}


async def take(name: str) -> str:
    app = create_app(Path("diode.db"), settings_path=Path("dashboard.toml"), theme="diode-dark")
    page = PICTURES[name](app)
    async with app.run_test(size=SIZE) as pilot:
        app.push_screen(page)
        for _ in range(200):
            await pilot.pause(0.05)
            if all(worker.is_finished for worker in app.workers):
                break
        await pilot.pause()
        return app.export_screenshot(title="diode-tui")


def main() -> None:
    for name in PICTURES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            picture = asyncio.run(take(name))
        (FOLDER / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
