"""Attaches Diode to torch.compile: the integrations, and what Inductor calls."""
