"""A model for a GPU in minutes: the problems that teach the most are timed, learned and judged."""
