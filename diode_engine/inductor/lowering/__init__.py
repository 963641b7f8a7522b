"""What Inductor offers for a product, and how a kernel of it is rendered and compiled."""
