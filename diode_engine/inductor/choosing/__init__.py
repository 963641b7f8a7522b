"""Makes, remembers, counts and reports the choice for a product that Inductor asks about."""
