"""The decision on a product that Inductor asks for: made, remembered, counted and reported."""
