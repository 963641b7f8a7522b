"""Which problems there are, how they are split, and which candidates each of them has."""
