"""Diode's places in torch.compile: installed, removed, and asked by Inductor."""
