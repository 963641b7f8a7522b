"""The records of a product (problem), a kernel (candidate) and a device. All other rooms use
them."""
