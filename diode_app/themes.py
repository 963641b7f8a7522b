"""The dashboard's colours: light and dark, each also in the palette of Okabe and Ito.

The latter can be told apart with any of the common kinds of colour blindness: M. Okabe and
K. Ito, Color Universal Design (2008), https://jfly.uni-koeln.de/color/. NO_COLOR in the
environment switches colours off (https://no-color.org); Textual heeds it.
"""

from __future__ import annotations

from textual.theme import Theme

DEFAULT = "diode-dark"

THEMES = (
    Theme(
        name="diode-dark",
        primary="#7aa2f7",
        secondary="#bb9af7",
        accent="#ff9e64",
        warning="#e0af68",
        error="#f7768e",
        success="#9ece6a",
        foreground="#d5dcf5",
        background="#16161e",
        surface="#1a1b26",
        panel="#24283b",
        dark=True,
    ),
    Theme(
        name="diode-light",
        primary="#2257a8",
        secondary="#7847bd",
        accent="#a04a00",
        warning="#7a5200",
        error="#b3153a",
        success="#2f6b12",
        foreground="#20242e",
        background="#f7f7f9",
        surface="#ffffff",
        panel="#e6e8ee",
        dark=False,
    ),
    Theme(
        name="okabe-ito-dark",
        primary="#56b4e9",  # sky blue
        secondary="#cc79a7",  # reddish purple
        accent="#f0e442",  # yellow
        warning="#e69f00",  # orange
        error="#d55e00",  # vermilion
        success="#009e73",  # bluish green
        foreground="#ffffff",
        background="#000000",
        surface="#101010",
        panel="#242424",
        dark=True,
    ),
    Theme(
        name="okabe-ito-light",
        primary="#0072b2",  # blue
        secondary="#8a3f6a",  # reddish purple, darker for the contrast on white
        accent="#7d5a00",  # orange, darker
        warning="#7d5a00",
        error="#a84300",  # vermilion, darker
        success="#00694d",  # bluish green, darker
        foreground="#000000",
        background="#ffffff",
        surface="#fafafa",
        panel="#e4e4e4",
        dark=False,
    ),
)
NAMES = tuple(theme.name for theme in THEMES)

# Of curves, in this order: also of Okabe and Ito, readable on light and dark grounds alike.
SERIES = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (213, 94, 0),
    (204, 121, 167),
    (86, 180, 233),
)
