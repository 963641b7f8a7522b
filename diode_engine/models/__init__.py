"""Models that predict how long a candidate takes on a problem, and the files they live in."""
