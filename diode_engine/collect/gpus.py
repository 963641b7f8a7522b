"""A GPU's number in this process, its own name, and the lock that one process holds while it times
on it."""

from __future__ import annotations

import os
from pathlib import Path

from diode_engine.errors import CollectionError, explain_os_error

VARIABLE = "CUDA_VISIBLE_DEVICES"
# All processes of a user must find the same locks, whatever their TMPDIR and DIODE_HOME. It is a
# local folder, since a lock is taken for every timing.
_LOCKS = Path("/tmp")


def visible_to_a_child(number: int) -> str:
    """The value of CUDA_VISIBLE_DEVICES for a child process that is to see only GPU `number` of
    this process. Where the variable is set here, that is its entry (a number, UUID or MIG name).
    Raises CollectionError where this process sees fewer GPUs."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return str(number)
    entries = [entry.strip() for entry in given.split(",")]
    if number >= len(entries) or not entries[number]:
        raise CollectionError(
            f"There is no GPU {number} here: {VARIABLE} is {given!r}, and GPUs are numbered from 0 "
            "in its order."
        )
    return entries[number]


def name_of(number: int) -> str:
    """The UUID of this process's GPU `number`: every process has the same one for the GPU, and no
    other GPU has it. Imports torch."""
    import torch

    return str(torch.cuda.get_device_properties(number).uuid)


def lock_of(name: str) -> Path:
    """The file that this user's processes lock while they time on the GPU of this name. Raises
    CollectionError where its folder cannot be made, or belongs to somebody else."""
    folder = _LOCKS / f"diode-{os.getuid()}"
    with explain_os_error(CollectionError, f"{folder}, where GPUs are locked, cannot be used"):
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise PermissionError("it is another user's")
    return folder / f"gpu-{name}.lock"
