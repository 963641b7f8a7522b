"""Whether padding a product's operands makes it faster."""
