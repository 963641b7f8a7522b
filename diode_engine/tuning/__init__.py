"""A model for a GPU in minutes: what would teach the most is timed, learned and judged."""
