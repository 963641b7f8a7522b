"""Which candidates of which problems are timed, and in which order."""
