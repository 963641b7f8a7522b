"""The parts of the demonstration: which problems it shows, the processes that ask Inductor what it
would do with them (and, on a GPU, do it), and how that is printed."""
