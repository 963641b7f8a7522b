"""All that is private in torch and that Diode uses, and all that differs between its versions.

All other modules use public names only, and do not ask which version is installed
(tests/test_torch_internals.py). Modules may be private, as torch._inductor's are: that is its API.
"""

DEVICE_TYPE = "cuda"  # torch's type of the devices that Diode chooses kernels for: NVIDIA's GPUs
