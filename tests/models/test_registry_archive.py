"""Archives of models, written and read, and indexes of them."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import diode_engine
from diode_engine import paths, registry
from diode_engine.core.hardware import H200
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError
from diode_engine.models.predictor import Predictor
from diode_engine.registry.index import import_offer, offered, read_index

pytestmark = pytest.mark.usefixtures("shipped")

Entries = list[tuple[zipfile.ZipInfo, bytes]]


@pytest.fixture
def mine(save, tmp_path):
    save(tmp_path / "model")
    return registry.register(tmp_path / "model", "mine")


@pytest.fixture
def archive(mine, tmp_path):
    registry.export_model(mine, tmp_path / "mine.zip")
    return tmp_path / "mine.zip"


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From here on another user's, empty registry."""
    monkeypatch.setenv("DIODE_HOME", str(tmp_path / "another"))


def test_an_archive_is_the_same_bytes_and_the_same_model(mine, archive, tmp_path, monkeypatch):
    digest = registry.export_model(mine, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    assert digest == hashlib.sha256(archive.read_bytes()).hexdigest()
    with zipfile.ZipFile(archive) as opened:
        assert opened.namelist() == ["manifest.json", "network-0.safetensors"]
    with pytest.raises(RegistryError, match="exists already"):
        registry.export_model(mine, archive)
    assert registry.import_model(archive) == (mine, False)
    elsewhere(monkeypatch, tmp_path)
    model, new = registry.import_model(archive)
    assert (new, model.reference) == (True, "mine@1")
    assert model.manifest.identity == mine.manifest.identity
    origin = {"archive": str(archive), "sha256": digest}
    assert registry.facts_of(model).origin == origin
    assert registry.lineage(model, registry.facts_of(model))["model"]["origin"] == origin
    registry.export_model(model, tmp_path / "theirs.zip")
    assert (tmp_path / "theirs.zip").read_bytes() == archive.read_bytes()


def test_an_archive_is_taken_wherever_a_model_is(mine, tmp_path, monkeypatch):
    file = tmp_path / "matmul_model.pt"  # the suffix does not matter
    registry.export_model(mine, file)
    elsewhere(monkeypatch, tmp_path)
    found = registry.resolve(str(file))
    assert (found.reference, found.slug, found.source) == ("mine@0", mine.slug, None)
    assert Predictor.load(found.folder).identity == mine.manifest.identity
    assert diode_engine.register_model(file) == "mine@1"
    assert registry.best_for(H200).model.reference == "mine@1"  # type: ignore[union-attr]


def test_a_file_with_code_is_not_taken_for_a_model(tmp_path):
    file = tmp_path / "matmul_model.pt"
    for content in (b"\x80\x04.", b"PK\3\4" + bytes(99), b""):
        file.write_bytes(content)
        with pytest.raises(ModelError, match="not an archive of a model"):
            registry.resolve(str(file))
    with zipfile.ZipFile(file, "w") as opened:  # as torch.save makes it
        opened.writestr("matmul_model/data.pkl", b"\x80\x04.")
    with pytest.raises(ModelError, match="not an archive of a model"):
        registry.resolve(str(file))


def rewritten(archive: Path, change: Callable[[Entries], Entries], method: int = 0) -> None:
    with zipfile.ZipFile(archive) as opened:
        entries = [(info, opened.read(info)) for info in opened.infolist()]
    with zipfile.ZipFile(archive, "w", method) as opened:
        for info, data in change(entries):
            opened.writestr(info.filename, data)


def named(name: str, data: bytes = b"x") -> tuple[zipfile.ZipInfo, bytes]:
    return zipfile.ZipInfo(name), data


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: [],
        lambda entries: entries[::-1],
        lambda entries: entries[:1],
        lambda entries: [*entries, named("../../evil.txt")],
        lambda entries: [*entries, named("/tmp/evil.txt")],
        lambda entries: [*entries, named("evil.py")],
        lambda entries: [entries[0], named("../" + entries[1][0].filename, entries[1][1])],
        lambda entries: [entries[0], (entries[1][0], entries[1][1][:-1])],
        lambda entries: [entries[0], (entries[1][0], entries[1][1][:-1] + b"!")],
        lambda entries: [(entries[0][0], b"{"), entries[1]],
        lambda entries: [(entries[0][0], entries[0][1].replace(b'"features": {\n  "version": ', b'"features": {\n  "version": 9')), entries[1]],  # noqa: E501
        lambda entries: [(entries[0][0], entries[0][1].replace(b'"version": 1,', b'"version": 9,', 1)), entries[1]],  # noqa: E501
    ],
    ids=["empty", "manifest last", "a file lacks", "slip", "absolute", "a file more", "slipped",
         "shorter", "altered", "no JSON", "other features", "newer format"],
)  # fmt: skip
def test_what_is_no_whole_archive_is_refused(archive, tmp_path, monkeypatch, change):
    rewritten(archive, change)
    elsewhere(monkeypatch, tmp_path)
    with pytest.raises(ModelError):
        registry.import_model(archive)
    assert registry.list_models() == []
    assert not list(tmp_path.rglob("evil*"))


def test_files_that_are_no_archives_are_refused(archive, tmp_path):
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="not an archive"):
        registry.import_model(archive)
    archive.write_bytes(data)
    rewritten(archive, lambda entries: entries, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelError, match="not made by"):
        registry.import_model(archive)
    archive.write_bytes(data)
    with zipfile.ZipFile(archive, "a") as opened:
        opened.comment = b"x"  # behind the archive
    with pytest.raises(ModelError, match="not an archive of a model"):
        registry.import_model(archive)
    with pytest.raises(ModelError, match="is a folder; register it"):
        registry.import_model(tmp_path)
    os.mkfifo(tmp_path / "pipe.zip")  # which is not waited for
    with pytest.raises(ModelError, match="no regular file"):
        registry.import_model(tmp_path / "pipe.zip")


def test_an_archive_of_many_entries_is_refused_before_they_are_listed(archive, monkeypatch):
    rewritten(archive, lambda entries: entries + [named(f"{i:0>60}", b"") for i in range(800)])
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(ModelError, match="not an archive of a model"):
        registry.import_model(archive)


def test_a_manifest_that_is_too_large_with_its_indents_is_not_registered(save, tmp_path):
    metrics = {f"m{i}": i for i in range(60_000)}
    save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    text = json.dumps({**manifest, "metrics": metrics}, separators=(",", ":"))
    assert len(text) < 1 << 20
    (tmp_path / "model" / "manifest.json").write_text(text)
    with pytest.raises(ModelError, match="more than 1 MiB"):
        registry.register(tmp_path / "model", "mine")
    assert registry.list_models() == []


def test_a_damaged_byte_anywhere_is_noticed(archive, tmp_path, monkeypatch):
    """Where it is imported none the less, the byte says nothing of the model."""
    whole, identity = archive.read_bytes(), registry.resolve("mine").manifest.identity
    elsewhere(monkeypatch, tmp_path)
    for place in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        archive.write_bytes(damaged)
        try:
            model, _ = registry.import_model(archive)
        except ModelError:
            continue
        assert model.manifest.identity == identity


@pytest.mark.parametrize(
    ("module", "step"), [(hashlib, "sha256"), (zipfile, "ZipFile")], ids=["hashed", "opened"]
)
def test_what_is_hashed_is_what_is_registered(module, step, save, archive, tmp_path, monkeypatch):
    """Somebody puts another archive in its place when it is hashed or opened."""
    asked = archive.read_bytes()
    wanted = hashlib.sha256(asked).hexdigest()
    save(tmp_path / "other", notes="of somebody else")
    theirs = tmp_path / "theirs.zip"
    registry.export_model(registry.register(tmp_path / "other", "theirs"), theirs)
    done = getattr(module, step)

    def swapped(*arguments: object, **named: object) -> object:
        shutil.copy(theirs, archive)
        return done(*arguments, **named)

    elsewhere(monkeypatch, tmp_path)
    monkeypatch.setattr(module, step, swapped)
    model, _ = registry.import_model(archive, sha256=wanted)
    assert model.manifest.name == "mine"
    assert archive.read_bytes() == theirs.read_bytes() != asked


def test_a_removal_that_cannot_be_noted_does_not_happen(mine, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    files = sorted(path.name for path in mine.folder.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RegistryError, match="No space left"):
            registry.remove(mine)
    assert sorted(path.name for path in mine.folder.iterdir()) == files
    registry.verify(mine)
    registry.remove(mine)
    assert not mine.folder.exists()
    assert list(mine.folder.parent.iterdir()) == []


@pytest.fixture
def index(archive, tmp_path):
    """An index beside the archive."""
    line = {
        "name": "mine", "version": 1, "hardware": "NVIDIA H200", "archive": "mine.zip",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bytes": archive.stat().st_size, "about": "For tests.",
    }  # fmt: skip
    path = tmp_path / "index.json"
    path.write_text(json.dumps({"format": "diode-model-index", "version": 1, "models": [line]}))
    return path


def relisted(index: Path, change: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Path:
    """The index with other lines, made of its only one."""
    given = json.loads(index.read_text())
    given["models"] = change(*given["models"])
    index.write_text(json.dumps(given))
    return index


def altered(index: Path, **changes: object) -> Path:
    return relisted(index, lambda line: [line | changes])


def test_an_index_offers_archives_beside_it(index, archive, tmp_path, monkeypatch):
    elsewhere(monkeypatch, tmp_path)
    (offer,) = read_index(index)
    assert (offer.reference, offer.hardware) == ("mine@1", "nvidia-h200")
    for name in ("mine", "mine@1"):
        assert offered((offer,), name, "NVIDIA H200") == offer
    for name, hardware in (("mine@2", None), ("other", None), ("mine", "A100")):
        with pytest.raises(NoSuchModelError, match="it has: mine@1"):
            offered((offer,), name, hardware)
    archive.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(ModelError, match="SHA-256"):
        import_offer(offer)
    assert registry.list_models() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "x"}, {"sha256": None}, {"name": "../x"}, {"version": "1"}, {"bytes": -1},
        {"archive": "http://example.com/a.zip"}, {"archive": "file:///etc/passwd"}, {"archive": 3},
        {"version": True},
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_refused(index, changes):
    with pytest.raises(RegistryError, match="Model 1 of the index"):
        read_index(altered(index, **changes))


def test_what_an_index_offers_twice_is_refused(index):
    with pytest.raises(RegistryError, match=r"Model 2 of the index .* is listed twice"):
        read_index(relisted(index, lambda line: [line, line]))


def test_a_long_index_is_not_told_whole(index):
    many = relisted(index, lambda line: [{**line, "hardware": f"gpu-{i}"} for i in range(1000)])
    offers = read_index(many)
    for asked, said in (("mine", "say for which"), ("other", "has no other")):
        with pytest.raises(RegistryError, match=said) as raised:
            offered(offers, asked)
        assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "diode-model-index", "version": 2, "models": []}']
)
def test_what_is_no_index_is_refused(index, text):
    index.write_text(text)
    with pytest.raises(RegistryError, match="index"):
        read_index(index)


class Handler(http.server.SimpleHTTPRequestHandler):
    asked: int = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        super().do_GET()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path):
    """Serves tmp_path/served; its address."""
    Handler.asked = 0
    (tmp_path / "served").mkdir()
    handler = partial(Handler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_what_is_downloaded_is_checked_and_kept(index, archive, tmp_path, server, monkeypatch):
    served = tmp_path / "served" / "mine.zip"
    shutil.copy(archive, served)
    elsewhere(monkeypatch, tmp_path)
    (offer,) = read_index(altered(index, archive=f"{server}/mine.zip"))
    told: list[tuple[int, int]] = []
    model, new = import_offer(offer, report=lambda done, total: told.append((done, total)))
    assert (model.reference, new) == ("mine@1", True)
    assert told[-1] == (offer.bytes, offer.bytes)
    assert registry.facts_of(model).origin["archive"] == offer.archive  # type: ignore[index]
    registry.remove(model)
    assert import_offer(offer)[0].reference == "mine@2"
    assert Handler.asked == 1
    kept = next((paths.data_dir() / "downloads").iterdir())
    kept.write_bytes(b"damaged")
    registry.remove(registry.resolve("mine@2"))
    assert import_offer(offer)[1]
    assert Handler.asked == 2


def test_a_download_that_is_something_else_is_refused(
    index, archive, tmp_path, server, monkeypatch
):
    data = archive.read_bytes()
    elsewhere(monkeypatch, tmp_path)
    (offer,) = read_index(altered(index, archive=f"{server}/mine.zip"))
    for sent, said in ((None, "404|File not found"), (data + b"x", "longer"), (data[:-1], "hash")):
        if sent is not None:
            (tmp_path / "served" / "mine.zip").write_bytes(sent)
        with pytest.raises(ModelError, match=said):
            import_offer(offer)
        assert list((paths.data_dir() / "downloads").iterdir()) == []
    assert registry.list_models() == []
