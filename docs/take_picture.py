"""Takes README's picture of the dashboard: a problem of the shipped timings, by the app itself.

python docs/take_picture.py
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

from diode_app.app import create_app
from diode_app.data.overview import shipped_timings
from diode_app.screens.problem import ProblemScreen
from diode_engine.store import Store, import_dataset
from diode_engine.store.query import problems

PICTURE = Path(__file__).resolve().parent / "dashboard.svg"
QUERY = "op:mm dtype:bf16 m:16 layout:row/col k>=4096"  # a layer as it is met in decoding
SIZE = (132, 40)


async def take() -> str:
    path = Path("diode.db")
    with Store.open(path) as store:
        for file in shipped_timings():
            import_dataset(store, file)
        row = problems(store, QUERY, sort="candidates", descending=True, limit=1)[0]
    app = create_app(path, settings_path=Path("dashboard.toml"), theme="diode-dark")
    async with app.run_test(size=SIZE) as pilot:
        app.push_screen(ProblemScreen(app.session, row.problem.key))
        for _ in range(200):
            await pilot.pause(0.05)
            if all(worker.is_finished for worker in app.workers):
                break
        await pilot.pause()
        return app.export_screenshot(title="diode-tui")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        picture = asyncio.run(take())
    PICTURE.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
