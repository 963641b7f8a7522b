"""diode-tui: Diode's work on a screen, over the same engine as the headless commands."""
