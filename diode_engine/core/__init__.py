"""What a product, a kernel and a device are: the records that every other room stands on."""
