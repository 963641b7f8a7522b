"""Collection: problems from their sources, candidates by a plan, timed by worker processes."""
