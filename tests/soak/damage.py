"""Files that are damaged, and disks that are full: whatever the command, it ends in a sentence and
one of Diode's exit codes, and calls nothing sound that is not."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from diode_engine import registry
from tests.soak import work
from tests.soak.children import done

CODES = (0, 1, 2, 3)

Command = tuple[object, ...]


def reading(store: Path, out: Path) -> Iterator[Command]:
    """The commands that read a store, and write what they find to `out` where they write."""
    where = ("--store", store)
    for words in (
        "db check", "db check --json", "data stats", "data stats --json", "data problems",
        "data problems best>0 --json", "data show 2", "data show 3 --json", "data map",
        "runs list", "runs list --json", "runs show 1", "runs show 2 --json", "runs follow 1",
    ):  # fmt: skip
        yield (*words.split(), *where)
    yield ("data", "export", out / "a.json", *where)
    yield ("data", "export", out / "a.packed.zst", *where)
    yield ("data", "export", out / "saved.json", "--damaged", *where)
    yield ("db", "backup", out / "copy.db", *where)
    yield ("draw-problems", out / "shapes.json", "--problems", "4", *where)


def writing(store: Path, file: Path) -> Iterator[Command]:
    """The commands that write to a store, `file` being a dataset."""
    where = ("--store", store)
    yield ("data", "import", file, *where)
    for words in ("runs note 1 odd", "runs tag 1 odd", "runs untag 1 odd", "db vacuum",
                  "db upgrade"):  # fmt: skip
        yield (*words.split(), *where)


def judge(ran: tuple[int, str, str], asked: Command) -> None:
    """What holds of every command whatever happens."""
    code, out, err = ran
    said = f"{asked}: {code}, {err}"
    assert code in CODES, said
    assert "Traceback" not in err, said
    assert "did not expect" not in err, said
    if code:
        # What a check finds is its answer, and so on stdout.
        assert err.strip() or (out.strip() and {"check", "verify"} & set(asked)), said


def flipped(data: bytes, rng: random.Random) -> bytes:
    """A bit, a byte or a stretch of bytes at a random place is another one."""
    made = bytearray(data)
    at = rng.randrange(len(made))
    how = rng.randrange(3)
    if how == 0:
        made[at] ^= 1 << rng.randrange(8)
    elif how == 1:
        made[at] = (made[at] + rng.randrange(1, 256)) % 256
    else:
        new = rng.randbytes(rng.randrange(2, 600))
        made[at : at + len(new)] = new[: len(made) - at]
    return bytes(made)


def truncated(data: bytes, rng: random.Random) -> bytes:
    """Cut short anywhere, or at the end of a page."""
    at = rng.randrange(len(data))
    return data[: at // 4096 * 4096 if rng.random() < 0.5 else at]


def damaged_stores(
    folder: Path,
    good: Path,
    damage: Callable[[bytes, random.Random], bytes],
    times: int,
    rng: random.Random,
) -> tuple[int, int]:
    """All commands on so many stores damaged from the `good` one. Returns how many of these a
    check called sound (they say what the good one says), and how many commands were run."""
    data, right = good.read_bytes(), work.content(good)
    store, file, out = folder / "bad.db", folder / "a.json", folder / "out"
    out.mkdir()
    work.command("data", "export", file, "--store", good)
    sound = commands = 0
    for number in range(times):
        for left in [*folder.glob("bad.db*"), *out.iterdir()]:
            left.unlink()
        bad = damage(data, rng)
        store.write_bytes(bad)
        code, said, err = work.command("db", "check", "--store", store)
        judge((code, said, err), ("db", "check"))
        assert (code == 0) == ("is sound" in said), said
        if code == 0:
            sound += 1
            assert work.content(store) == right, f"damage {number} is called sound: {said}"
        # What it says must not depend on what was asked before, so each finds the file anew.
        asked = list(reading(store, out))
        for one in [*rng.sample(asked, 4), rng.choice(list(writing(store, file)))]:
            store.write_bytes(bad)
            judge(work.command(*one), one)
            commands += 1
        assert not [left for left in out.iterdir() if left.name.startswith(".")], "left behind"
    return sound, commands


def damaged_registries(
    home: Path, model: Path, out: Path, times: int, rng: random.Random
) -> tuple[int, int]:
    """Commands on a registry of which one file is damaged, with `home` as $DIODE_HOME. Returns
    how often all models passed their check (no weights are damaged then) and how many commands
    were run."""
    for _ in range(2):
        registry.register(model, "mine")
    registry.set_default(registry.resolve("mine@1"))
    good = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    files = sorted(path for path, data in good.items() if data)
    asked = [
        words.split()
        for words in (
            "models list", "models list --json", "models show mine@1", "models show mine@2 --json",
            "models verify mine@2", "models tag mine@1 b", "models note mine@2 x",
            "models alias good mine@2", "models rollback", "models compare mine@1 mine@2",
            "models promote mine@2 --force --reason x", "models remove mine@2",
            f"models export mine@1 {out} --replace",
        )
    ]  # fmt: skip
    sound = commands = 0
    for number in range(times):
        bad = rng.choice(files)
        damage = (flipped if rng.random() < 0.8 else truncated)(good[bad], rng)
        for one in [["models", "verify"], *rng.sample(asked, 4)]:
            shutil.rmtree(home)
            for path, data in good.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(damage if path == bad else data)
            ran = work.command(*one)
            judge(ran, tuple(one))
            commands += 1
            if one == ["models", "verify"] and ran[0] == 0:
                sound += 1
                assert bad.suffix == ".json" or damage == good[bad], f"damage {number} of {bad}"
    return sound, commands


def full_disks(
    folder: Path, good: Path, file: Path, times: int, rng: random.Random
) -> tuple[int, int]:
    """Commands that write, each in a process whose files may not become longer than some limit
    (RLIMIT_FSIZE, which ordinary users can set too). Returns how many failed for it and how many
    were run. What lay there before is there afterwards, and nothing half written beside it."""
    right, out, store = work.content(good), folder / "out", folder / "a.db"
    data = good.read_bytes()
    after: list[object] = []
    out.mkdir()
    failed = 0
    for number in range(times):
        for left in [*folder.glob("a.db*"), *out.iterdir()]:
            left.unlink()
        store.write_bytes(data)
        commands: list[Command] = [
            ("db", "backup", out / "copy.db", "--store", store),
            ("data", "export", out / "a.json", "--store", store),
            ("data", "export", out / "a.packed.zst", "--store", store),
            ("data", "import", file, "--store", store),
            ("db", "vacuum", "--store", store),
            ("runs", "note", "1", "x" * 3000, "--store", store),
        ]
        asked = commands[number % len(commands)]
        limit = rng.randrange(1, len(data)) if rng.random() < 0.7 else rng.randrange(1, 40_000)
        ran, _ = done(work.command, *asked, home=folder / "home", limit=limit)
        judge(ran, asked)
        failed += ran[0] != 0
        found, _ = done(work.check, str(store), home=folder / "home")
        assert found == (), f"{asked} with {limit} bytes: {found}"
        now = work.content(store)
        if "import" in asked and ran[0] == 0:
            after = after or now
            assert now == after
        else:
            assert now == right, f"{asked} with {limit} bytes"
        there = sorted(path.name for path in out.iterdir())
        target = [Path(str(asked[2])).name] if str(asked[2]).startswith(str(out)) else []
        assert there == (target if ran[0] == 0 else []), f"{asked} with {limit} bytes: {there}"
    return failed, times
