"""The guard around every function of Diode that torch calls.

An exception in Diode must not end a compile: torch's own function answers instead, and the failure
is reported. `tests/inductor_nogpu/test_guard.py` lists the guarded functions.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# What a guarded function returns to leave the answer to torch's own function. An exception that
# torch's function then raises is its own: the guard neither counts nor repeats it.
STOCK: Final[Any] = object()

# Called with what failed, in words, and the error; raises the error again without fallback.
Report = Callable[[str, Exception], None]
FindReport = Callable[..., Report | None]

_logged: set[str] = set()


def guard(
    what: str,
    *,
    stock: Callable[..., Any],
    report: FindReport | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that torch calls. Where it raises an Exception or returns STOCK, `stock`
    is called with the same arguments, and its answer returned. (KeyboardInterrupt, and other
    exceptions that are no Exception, pass.)

    `what` says in words what has failed then. `report`, called with the same arguments, returns the
    function that counts and logs the failure; without one the failure is logged once.
    """

    def decorate(ours: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(ours)
        def function(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                answer = ours(*args, **kwargs)
            except Exception as error:  # noqa: BLE001
                _report_failure(what, error, report and functools.partial(report, *args, **kwargs))
                answer = STOCK
            return stock(*args, **kwargs) if answer is STOCK else answer

        return function

    return decorate


def do_nothing(*_: Any, **__: Any) -> None:
    """Do nothing: the `stock` of a function that torch calls for no answer."""


def _report_failure(
    what: str, error: Exception, find_report: Callable[[], Report | None] | None
) -> None:
    """Report a failure; what fails may be the report itself."""
    try:
        report = find_report and find_report()
        if report is not None:
            report(what, error)
            return
    except Exception as raised:
        if raised is error:
            raise
        log.debug("A failure could not be reported.", exc_info=True)
    if what not in _logged:
        _logged.add(what)
        log.warning(
            "Diode leaves this to torch: %s, %s: %s (logged once).",
            what, type(error).__name__, error, exc_info=log.isEnabledFor(logging.DEBUG),
        )  # fmt: skip
