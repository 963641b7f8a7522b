"""Where Diode sits in torch.compile: put in place, taken out, and asked by Inductor."""
