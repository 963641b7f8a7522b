"""The records of a product (problem), a kernel (candidate), a timing and a device, and the tables
of operators and templates. All other packages use them."""
