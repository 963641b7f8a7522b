"""What is decided of a product that Inductor asks for, remembered, counted and told."""
