"""The keys that a terminal sends."""

from __future__ import annotations

import os
from contextlib import closing
from queue import SimpleQueue
from threading import Thread

from textual.app import App

from diode_app.terminal_driver import TerminalDriver


async def test_escape_is_a_key_of_its_own_also_where_another_follows_it_at_once():
    """An arrow is one key, and so is Alt with a letter that edits a line."""
    terminal, keyboard = os.pipe()
    sent = SimpleQueue()
    driver = TerminalDriver(App())
    driver.fileno, driver.process_message = terminal, sent.put
    thread = Thread(target=driver.run_input_thread, daemon=True)
    thread.start()
    with closing(os.fdopen(terminal)), closing(os.fdopen(keyboard, "wb", 0)) as keys:
        keys.write(b"\x1b")
        assert sent.get(timeout=30).key == "escape"
        keys.write(b"\x1b:\x1b2\x1b\x1b[A\x1bf")
        found = [sent.get(timeout=30).key for _ in range(7)]
        assert found == ["escape", "colon", "escape", "2", "escape", "up", "ctrl+right"]
        driver.exit_event.set()
        thread.join()
    assert driver.fileno == terminal
