"""The keys that a terminal sends."""

from __future__ import annotations

import os
from queue import SimpleQueue
from select import select
from threading import Thread

from textual.app import App

from diode_app.terminal_driver import TerminalDriver


def start(hear):
    terminal, keyboard = os.pipe()
    driver = TerminalDriver(App())
    driver.fileno, driver.process_message = terminal, hear
    thread = Thread(target=driver._run_input_thread, daemon=True)
    thread.start()
    return driver, thread, os.fdopen(terminal), os.fdopen(keyboard, "wb", 0)


async def test_escape_is_a_key_of_its_own_also_where_another_follows_it_at_once():
    """An arrow is one key, and so is Alt with a letter that edits a line. What is no UTF-8, which
    would end Textual's reading, is left out."""
    sent = SimpleQueue()
    driver, thread, terminal, keyboard = start(sent.put)
    with terminal, keyboard:
        keyboard.write(b"\x1b:\x1b2\x1b\x1b[A\xff\x1bf\xe4\xc3\xa4\x1b")
        found = [sent.get(timeout=30).key for _ in range(9)]
        assert found[:7] == ["escape", "colon", "escape", "2", "escape", "up", "ctrl+right"]
        assert found[7:] == ["ä", "escape"]
        keyboard.close()
        thread.join(30)
        assert (thread.is_alive(), driver.fileno) == (False, terminal.fileno())
    assert not driver.exit_event.is_set()  # else Textual leaves the mouse switched on


async def test_it_ends_amid_a_long_paste():
    driver, thread, terminal, keyboard = start(lambda _: driver.exit_event.wait())
    with terminal, keyboard:
        while select([], [keyboard], [], 1)[1]:  # until nothing is read any more
            keyboard.write(b"a" * 512)
        driver.exit_event.set()
        thread.join(30)
        assert not thread.is_alive()
