"""Whether padding a product's operands pays."""
