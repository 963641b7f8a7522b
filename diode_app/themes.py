"""The dashboard's colours: light and dark, each also in the palette of Okabe and Ito.

The latter can be told apart with any of the common kinds of colour blindness: M. Okabe and
K. Ito, Color Universal Design (2008), https://jfly.uni-koeln.de/color/. NO_COLOR in the
environment switches colours off (https://no-color.org); Textual heeds it.
"""

from __future__ import annotations

from textual.theme import Theme

DEFAULT = "diode-dark"

# primary, secondary, accent, warning, error, success; then foreground, background, surface, panel
_COLOURS = {
    "diode-dark": """
        #7aa2f7 #bb9af7 #ff9e64 #e0af68 #f7768e #9ece6a  #d5dcf5 #16161e #1a1b26 #24283b""",
    "diode-light": """
        #2257a8 #7847bd #a04a00 #7a5200 #b3153a #2f6b12  #20242e #f7f7f9 #ffffff #e6e8ee""",
    # Sky blue, reddish purple, yellow, orange, vermilion, bluish green.
    "okabe-ito-dark": """
        #56b4e9 #cc79a7 #f0e442 #e69f00 #d55e00 #009e73  #ffffff #000000 #101010 #242424""",
    # Blue; the others darker, for the contrast on white.
    "okabe-ito-light": """
        #0072b2 #8a3f6a #7d5a00 #7d5a00 #a84300 #00694d  #000000 #ffffff #fafafa #e4e4e4""",
}
NAMES = tuple(_COLOURS)


def _make_theme(name: str) -> Theme:
    primary, secondary, accent, warning, error, success, *grounds = _COLOURS[name].split()
    foreground, background, surface, panel = grounds
    return Theme(
        name=name, primary=primary, secondary=secondary, accent=accent, warning=warning,
        error=error, success=success, foreground=foreground, background=background,
        surface=surface, panel=panel, dark=name.endswith("dark"),
    )  # fmt: skip


THEMES = tuple(map(_make_theme, NAMES))

# Of curves, in this order: also of Okabe and Ito, readable on light and dark grounds alike.
SERIES = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (213, 94, 0),
    (204, 121, 167),
    (86, 180, 233),
)
