"""Installing, approving and removing: what was reviewed is what is installed, or nothing is."""

import shutil
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError, NotFoundError, StorageError
from clawd.plugins.loader import InstalledPlugin, PluginPins, PluginStore
from tests.plugins.plugin_files import manifest_text, plugin
from tests.support.rows import each_row


class Bench:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.folder = base / "plugins"
        self.pins = base / "plugin_pins.json"
        self.store = PluginStore(self.folder, PluginPins(self.pins))
        self.source = plugin(base / "source")

    def install(self) -> None:
        digest = self.store.inspect(self.source).digest
        self.store.install(self.source, digest=digest, by=7)

    def one(self) -> InstalledPlugin:
        (found,) = self.store.installed()
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nothing_is_installed_at_first(bench: Bench) -> None:
    assert bench.store.installed() == []


def test_what_was_reviewed_is_installed_and_ready(bench: Bench) -> None:
    review = bench.store.inspect(bench.source)
    assert (review.replaces, review.changes) == ("", ())
    assert {path for path, _, _ in review.files} == {"manifest.toml", "run"}
    bench.install()
    found = bench.one()
    assert (found.name, found.state, found.reason) == ("probe", "ready", "")
    assert found.digest == review.digest
    assert bench.pins.stat().st_mode & 0o777 == 0o600
    assert bench.folder.stat().st_mode & 0o777 == 0o700
    assert [each for each in bench.folder.iterdir() if each.name.startswith(".")] == []


def test_a_source_that_changed_after_the_review_is_not_installed(bench: Bench) -> None:
    digest = bench.store.inspect(bench.source).digest
    (bench.source / "run").write_text("#!/bin/sh\nother\n")
    with pytest.raises(InvalidRequestError, match="not what was reviewed"):
        bench.store.install(bench.source, digest=digest, by=7)
    assert bench.store.installed() == []


def test_a_changed_file_makes_it_changed_until_it_is_approved(bench: Bench) -> None:
    bench.install()
    (bench.folder / "probe" / "run").write_text("#!/bin/sh\n")
    (bench.folder / "probe" / "new").write_text("")
    found = bench.one()
    assert found.state == "changed"
    assert found.reason == ("it was changed since it was approved (new: new; changed: run)")
    review = bench.store.review("probe")
    assert review.changes == ("new: new", "changed: run")
    with pytest.raises(InvalidRequestError):
        bench.store.approve("probe", digest="0" * 64, by=7)
    assert bench.one().state == "changed"
    bench.store.approve("probe", digest=review.digest, by=7)
    assert bench.one().state == "ready"


def test_what_could_not_be_approved_replaces_nothing(bench: Bench) -> None:
    bench.install()
    before = bench.one().digest
    kept = bench.pins.read_bytes()
    bench.pins.write_bytes(b"no JSON")
    (bench.source / "manifest.toml").write_text(manifest_text(version="2.0"))
    with pytest.raises(StorageError):
        bench.install()
    bench.pins.write_bytes(kept)
    found = bench.one()
    assert (found.state, found.digest) == ("ready", before)


def test_another_version_replaces_the_one_before(bench: Bench) -> None:
    bench.install()
    (bench.source / "manifest.toml").write_text(manifest_text(version="2.0"))
    assert bench.store.inspect(bench.source).replaces == "1.0"
    bench.install()
    found = bench.one()
    assert found.manifest is not None
    assert (found.manifest.version, found.state) == ("2.0", "ready")
    assert [each.name for each in bench.folder.iterdir()] == ["probe"]


def test_what_is_removed_is_gone_with_its_approval(bench: Bench) -> None:
    bench.install()
    kept = bench.base / "kept"
    shutil.copytree(bench.folder / "probe", kept)
    bench.store.remove("probe")
    assert list(bench.folder.iterdir()) == []
    with pytest.raises(NotFoundError):
        bench.store.remove("probe")
    shutil.copytree(kept, bench.folder / "probe")
    assert bench.one().state == "unapproved"


def test_what_was_put_there_by_hand_is_unapproved_or_broken(bench: Bench) -> None:
    plugin(bench.folder / "probe")
    plugin(bench.folder / "other")
    plugin(bench.folder / "Bad Name")
    (bench.folder / "link").symlink_to(bench.source)
    (bench.folder / "file").write_text("")
    states = {each.name: each.state for each in bench.store.installed()}
    assert states == {
        "Bad Name": "broken",
        "file": "broken",
        "link": "broken",
        "other": "broken",  # it calls itself probe
        "probe": "unapproved",
    }
    with pytest.raises(InvalidRequestError, match="calls itself probe"):
        bench.store.review("other")


@each_row("name", ["", "..", "../source", "link", "none", "a/b", ".new-1"], fresh=["bench"])
def test_only_names_of_plugins_are_taken(bench: Bench, name: str) -> None:
    bench.folder.mkdir()
    (bench.folder / "link").symlink_to(bench.source)
    for act in (bench.store.review, bench.store.remove):
        with pytest.raises(NotFoundError):
            act(name)
    assert bench.source.exists()


@each_row("damage", ["other form", "open to others", "no JSON", "version"], fresh=["bench"])
def test_without_sound_approvals_nothing_is_ready(bench: Bench, damage: str) -> None:
    bench.install()
    text = bench.pins.read_text()
    if damage == "open to others":
        bench.pins.chmod(0o644)
    elif damage == "version":
        bench.pins.write_text(text.replace('"version": 1,', '"version": 2,'))
    else:
        bench.pins.write_text("[]" if damage == "other form" else "{")
    found = bench.one()
    assert found.state == "unapproved"
    assert str(bench.pins) in found.reason
    with pytest.raises(StorageError):
        bench.store.approve("probe", digest=found.digest, by=7)


def test_an_installation_that_was_broken_off_leaves_nothing_that_runs(bench: Bench) -> None:
    bench.install()
    shutil.copytree(bench.source, bench.folder / ".new-0badcafe")
    shutil.copytree(bench.source, bench.folder / ".old-0badcafe")
    assert [each.name for each in bench.store.installed()] == ["probe"]
    bench.install()
    assert [each.name for each in bench.folder.iterdir()] == ["probe"]
