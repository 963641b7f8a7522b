"""Where problems come from, how they are split, and which candidates each of them has."""
