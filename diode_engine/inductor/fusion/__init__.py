"""What fusing a product's epilogue saves."""
