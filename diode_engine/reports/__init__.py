"""A program's report: the products that it compiles, what Diode chooses for each, and what that
gains. `record` holds it and reads its files; it does not import torch."""
