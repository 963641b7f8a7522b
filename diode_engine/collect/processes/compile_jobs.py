"""How classes that are ordered at the same time are divided into jobs for compilers."""

from __future__ import annotations

from collections.abc import Iterable

from diode_engine.inductor.lowering.kernel_class import KernelClass

MAX_CLASSES = 8


def jobs_of(
    classes: Iterable[KernelClass], *, ordered: int, compilers: int
) -> list[list[KernelClass]]:
    """The classes in jobs of one family each, whose classes share what they are rendered from.

    `ordered` is how many classes the order waits for, these among them. Where it is small, each
    class is a job of its own, so that the compilers share the order and it is done soon.
    """
    size = min(MAX_CLASSES, 1 + ordered // max(1, compilers))
    families: dict[str, list[KernelClass]] = {}
    for cls in classes:
        families.setdefault(cls.family, []).append(cls)
    return [
        members[at : at + size]
        for members in families.values()
        for at in range(0, len(members), size)
    ]
