"""What a backup's reader takes, and what a hostile archive may try in vain."""

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawctl.backup_archive import (
    FORMAT,
    ArchivedFile,
    ArchiveReader,
    ArchiveWriter,
    ChainFacts,
    Manifest,
)
from clawd.errors import ClawError
from tests.support.hostile import HOSTILE
from tests.support.rows import each_row

BODY = b"# a note\n"


def entry(path: str = "home/knowledge/a.md", body: bytes = BODY, **changes: Any) -> ArchivedFile:
    made = ArchivedFile(path=path, size=len(body), sha256=hashlib.sha256(body).hexdigest())
    return msgspec.structs.replace(made, **changes)


def manifest(*files: ArchivedFile, form: str = FORMAT) -> Manifest:
    return Manifest(
        format=form,
        created_at="2026-01-01T00:00:00Z",
        version="0.1.0",
        host="here",
        home="/home/ada/.clawd",
        is_system=False,
        with_keys=False,
        schema=8,
        receipts=ChainFacts(),
        left_out=(),
        files=files,
    )


def archive(
    told: Manifest | bytes, *members: tuple[tarfile.TarInfo, bytes], name: str = "manifest.json"
) -> bytes:
    data = told if isinstance(told, bytes) else msgspec.json.encode(told)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        header = tarfile.TarInfo(name)
        header.size = len(data)
        tar.addfile(header, io.BytesIO(data))
        for member, body in members:
            tar.addfile(member, io.BytesIO(body))
    return gzip.compress(stream.getvalue())


def member(
    path: str = "home/knowledge/a.md", body: bytes = BODY, **changes: Any
) -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(path)
    header.size = len(body)
    for name, value in changes.items():
        setattr(header, name, value)
    return header, body


def read(data: bytes) -> dict[str, bytes]:
    reader = ArchiveReader(io.BytesIO(data))
    return {each.path: b"".join(pieces) for each, pieces in reader.files()}


def refusal(data: bytes) -> str:
    with pytest.raises(ClawError) as caught:
        read(data)
    return caught.value.message


NAMES = st.lists(
    st.from_regex(r"[A-Za-z0-9äß _-]{1,40}\.md", fullmatch=True), max_size=5, unique=True
)


@settings(max_examples=40, deadline=None)
@given(names=NAMES, body=st.binary(max_size=3_000_000))
def test_what_was_written_is_read(names: list[str], body: bytes) -> None:
    files = [entry(f"home/deep/{'x' * 90}/{name}", body) for name in names]
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, manifest(*files))
    for each in files:
        writer.add(each, io.BytesIO(body), lambda _count: None)
    writer.close()
    assert read(stream.getvalue()) == {each.path: body for each in files}


def test_a_file_that_changes_while_it_is_written_is_told() -> None:
    writer = ArchiveWriter(io.BytesIO(), manifest(entry()))
    with pytest.raises(ClawError, match="was changed while it was read"):
        writer.add(entry(), io.BytesIO(BODY.upper()), lambda _count: None)
    writer.close()


@each_row(
    "path",
    [
        "home/../../etc/passwd",
        "../home/x",
        "/etc/passwd",
        "home//x",
        "home/./x",
        "home",
        "home/",
        "etc/x",
        "",
        "home/a\nb",
        "home/\x1b[2Jx",
        "home/" + "a" * 300,
        "home/" + "a/" * 3000 + "b",
        "home/a\0b",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    told = refusal(archive(manifest(entry(path)), member("home/x")))
    assert "leads elsewhere" in told
    assert "\x1b" not in told


@each_row(
    ("changes", "why"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0}, "not a plain file"),
        ({"type": tarfile.LNKTYPE, "linkname": "/etc/passwd", "size": 0}, "not a plain file"),
        ({"type": tarfile.CHRTYPE, "size": 0}, "not a plain file"),
        ({"type": tarfile.BLKTYPE, "size": 0}, "not a plain file"),
        ({"type": tarfile.FIFOTYPE, "size": 0}, "not a plain file"),
        ({"type": tarfile.DIRTYPE, "size": 0}, "not a plain file"),
        ({"type": tarfile.CONTTYPE}, "not a plain file"),
        ({"uid": 1000}, "belongs to uid 1000"),
        ({"gid": 1000}, "belongs to uid 0"),
        ({"name": "home/other"}, "where its manifest names"),
        ({"name": "home/../x"}, "where its manifest names"),
    ],
)
def test_a_member_that_is_not_what_the_manifest_says_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    told = manifest(entry())
    assert why in refusal(archive(told, member(**changes)))


def test_another_body_is_refused() -> None:
    assert "damaged or changed" in refusal(archive(manifest(entry()), member(body=b"# b note\n")))


def test_another_size_is_refused() -> None:
    assert "its manifest says" in refusal(archive(manifest(entry()), member(body=BODY * 2)))


def test_more_and_fewer_members_than_named_are_refused() -> None:
    assert "more than" in refusal(archive(manifest(entry()), member(), member("home/more")))
    assert "ends before" in refusal(archive(manifest(entry())))


@each_row(
    ("files", "why"),
    [
        ((entry(), entry()), "twice"),
        ((entry("home/a"), entry("home/a/b")), "a file and a folder"),
        ((entry(size=-1),), "no valid size"),
        ((entry(sha256="00"),), "no valid size"),
        ((entry(mtime_ns=-1),), "no valid size"),
        ((entry(mtime_ns=1 << 62),), "no valid size"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    files: tuple[ArchivedFile, ...], why: str
) -> None:
    assert why in refusal(archive(manifest(*files), member()))


@each_row(
    "changes",
    [
        {"created_at": "../../../etc"},
        {"created_at": "2026-01-01T00:00:00Z/../.."},
        {"created_at": ""},
        {"receipts": ChainFacts(seq=-1)},
        {"receipts": ChainFacts(seq=1, hash="x")},
        {"receipts": ChainFacts(first_public_key="../key")},
    ],
)
def test_facts_that_are_put_to_use_have_their_form(changes: dict[str, Any]) -> None:
    told = msgspec.structs.replace(manifest(entry()), **changes)
    assert "not a backup that can be trusted" in refusal(archive(told, member()))


def test_a_newer_form_is_told_apart_from_rubbish() -> None:
    assert "this clawctl reads clawd-backup/1" in refusal(archive(manifest(form="clawd-backup/2")))


@each_row(
    "data",
    [
        b"",
        b"hello",
        gzip.compress(b""),
        gzip.compress(b"x" * 5000),
        archive(b"[]"),
        archive(b"{"),
        archive(b"[" * 100_000),
        archive(manifest(), name="other"),
        archive(manifest(entry()), member())[:-30],
        archive(manifest(entry()), member())[:200],
    ],
    ids=range(10),
)
def test_rubbish_is_refused(data: bytes) -> None:
    assert "not a backup that can be trusted" in refusal(data)


def test_a_header_that_claims_gigabytes_is_not_read() -> None:
    """A pax header is read whole by tarfile: 8 GiB of zeros are 8 MiB in gzip."""
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, (8 << 30) - 1
    data = gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 2_000_000)
    assert "a header of 8589934592 bytes" in refusal(data)


def test_a_manifest_that_claims_gigabytes_is_not_read() -> None:
    header = tarfile.TarInfo("manifest.json")
    header.size = (8 << 30) - 1
    data = gzip.compress(header.tobuf(tarfile.PAX_FORMAT) + b"\0" * 2_000_000)
    assert "its manifest has 8589934591 bytes" in refusal(data)


def test_a_sparse_member_is_refused() -> None:
    header, body = member()
    header.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.map": "0,1", "GNU.sparse.size": "9"}
    assert refusal(archive(manifest(entry()), (header, body)))


def test_what_follows_the_end_is_refused() -> None:
    data = archive(manifest(entry()), member())
    assert "follows its end" in refusal(data + gzip.compress(b"more"))
    assert "follows its end" in refusal(data + gzip.compress(bytes(2_000_000)))


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_gets_through(place: int, bit: int) -> None:
    data = bytearray(archive(manifest(entry()), member()))
    data[place % len(data)] ^= 1 << bit
    try:
        found = read(bytes(data))
    except ClawError:
        return
    # The gzip header's own time, name and flags say nothing about the contents.
    assert found == {"home/knowledge/a.md": BODY}


@each_row("cut", [lambda data: data[: len(data) // 2], lambda data: data[:-1]])
def test_a_cut_archive_is_refused(cut: Callable[[bytes], bytes]) -> None:
    assert refusal(cut(archive(manifest(entry()), member())))


@each_row("form", [(), ("--json",)])
def test_no_word_of_a_manifest_drives_the_terminal(tmp_path: Path, form: tuple[str, ...]) -> None:
    text = HOSTILE.encode(errors="replace").decode()
    told = msgspec.structs.replace(
        manifest(entry()), host=text, home=text, version=text, left_out=(text,)
    )
    file = tmp_path / "b.tar.gz"
    file.write_bytes(archive(told, member()))
    done = subprocess.run(
        [sys.executable, "-m", "clawctl", "backup", "list", str(file), *form],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
    )
    shown = done.stdout.decode() + done.stderr.decode()
    assert {c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}} <= {"\n"}


@each_row("verb", ["list", "verify", "restore"])
def test_a_file_that_is_not_there_or_is_a_folder_is_told(tmp_path: Path, verb: str) -> None:
    for file, why in ((tmp_path / "none", "there is no file"), (tmp_path, "cannot be read")):
        done = subprocess.run(
            [sys.executable, "-m", "clawctl", "backup", verb, str(file)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert why in done.stderr
