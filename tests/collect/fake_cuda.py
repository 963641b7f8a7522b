"""A libcuda that loads anything and launches nothing, or what a test puts in `launched`."""

import ctypes

_LIMIT = 232448
_STATIC = 0


class FakeCuda:
    """Counts handles up from 1; `fails` holds the result codes of calls by their names."""

    def __init__(self, **fails):
        self.fails = fails
        self.calls = []
        self.cubins = {}  # by module, whose handle is its function's too
        self.on_launch = lambda function, grid, block, shared, stream, packed: None

    def __getattr__(self, name):
        def call(*args):
            self.calls.append(name)
            code = self.fails.get(name, 0)
            behaviour = getattr(type(self), f"_{name}", None)
            if not code and behaviour is not None:
                behaviour(self, *args)
            return code

        return call

    def _cuModuleLoadData(self, module, cubin):
        handle = len(self.cubins) + 1
        self.cubins[handle] = cubin
        module._obj.value = handle

    def _cuModuleGetFunction(self, function, module, name):
        function._obj.value = module.value

    def _cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = _LIMIT

    def _cuFuncGetAttribute(self, value, attribute, function):
        value._obj.value = _STATIC

    def _cuGetErrorString(self, code, text):
        text._obj.value = b"what went wrong"

    def _cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, packed, extra):
        assert extra is None
        self.on_launch(function.value, (gx, gy, gz), (bx, by, bz), shared, stream, packed)


def unpacked(packed, arguments):
    """The values that a kernel with these arguments would be given."""
    kinds = {"u64": ctypes.c_uint64, "u32": ctypes.c_uint32}
    return {
        what: kinds[kind].from_address(address).value
        for (what, kind), address in zip(arguments, packed, strict=True)
    }
