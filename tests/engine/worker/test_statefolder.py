"""State files: whole or not at all, of this model or not used, and never over the quota."""

import contextlib
import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clawd.engine.protocol import LoraAdapter, ModelConfig
from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.files import fingerprint
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.statefolder import (
    STALE_S,
    BadStateError,
    StateFolder,
    StateHeader,
    StoredState,
    file_size,
    is_being_written,
    pack_tokens,
    read_header,
    read_state,
    write_slices,
)
from tests.support.rows import each_row

PRINT = "ab" * 32
OTHER = "cd" * 32
TOKENS = [5, 70_000, 0, 9]
PARTS = (
    Part(text="hé", tokens=(5, 70_000), generated=False),
    Part(text="o", tokens=(0, 9), generated=True),
)


def state(size: int = 1000, seed: int = 1) -> Buffer:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def header(size: int = 1000) -> StateHeader:
    return StateHeader(fingerprint=PRINT, tokens=pack_tokens(TOKENS), parts=PARTS, size=size)


def written(path: Path, size: int = 1000) -> Path:
    for _ in write_slices(path, header(size), state(size)):
        pass
    return path


def save(
    folder: StateFolder, tokens: list[int], size: int = 1000, used_at: float = 1000.0
) -> StoredState | None:
    results = list(folder.write(tokens, PARTS, state(size), used_at))
    return results[-1] if results else None


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "state")
    got = read_header(path)
    assert got == header()
    assert got.token_list() == TOKENS
    assert path.stat().st_size == file_size(got)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    into = np.zeros(1200, np.uint8)
    read_state(path, got, into)
    assert into[:1000].tobytes() == state().tobytes()
    assert list(tmp_path.iterdir()) == [path]


def test_every_shortened_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "state", 40)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(BadStateError):
            read_header(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(BadStateError):
        read_header(path)


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "state", 40)
    whole = path.read_bytes()
    into = np.zeros(40, np.uint8)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BadStateError):
            read_state(path, header(40), into)


@each_row("data", [b"", b"GGUF", b"CLAWDKV1" + b"\xff" * 64, os.urandom(5000)])
def test_garbage_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(data)
    with pytest.raises(BadStateError):
        read_header(path)


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(written(tmp_path / "state"))
    with pytest.raises(OSError):
        read_header(link)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadStateError):
        read_header(tmp_path / "pipe")


def test_a_write_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    slices = write_slices(tmp_path / "state", header(), state())
    next(slices)
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    slices.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_finds_its_states_again_last_used_first(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "prefix", 10_000, PRINT)
    assert folder.states() == []
    older, newer = save(folder, [1, 2], used_at=100.0), save(folder, [3, 4], used_at=200.0)
    assert older is not None
    assert newer is not None
    assert StateFolder(tmp_path / "prefix", 10_000, PRINT).states() == [newer, older]
    assert stat.S_IMODE((tmp_path / "prefix").stat().st_mode) == 0o700
    into = np.zeros(1000, np.uint8)
    assert folder.read(newer, into)
    assert into.tobytes() == state().tobytes()


def test_states_of_other_models_are_left_alone_but_not_used(tmp_path: Path) -> None:
    other = save(StateFolder(tmp_path, 10_000, OTHER), [1, 2])
    assert other is not None
    mine = StateFolder(tmp_path, 10_000, PRINT)
    assert mine.states() == []
    assert other.path.exists()
    # Under the name of a state of this model it is a foreign file.
    posing = tmp_path / f"{PRINT[:16]}-{'0' * 16}.kv"
    other.path.rename(posing)
    assert mine.states() == []
    assert not posing.exists()


def test_broken_files_are_removed_and_files_of_others_are_not(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, 10_000, PRINT)
    stored = save(folder, [1, 2])
    assert stored is not None
    stored.path.write_bytes(stored.path.read_bytes()[:-1])
    (tmp_path / f"{PRINT[:16]}-{'1' * 16}.kv").write_bytes(b"garbage")
    mine = {tmp_path / "notes.txt", tmp_path / "holiday.kv", tmp_path / "backup.part"}
    for path in mine:
        path.write_bytes(b"not a state")
        os.utime(path, (1, 1))
    assert folder.states() == []
    assert set(tmp_path.iterdir()) == mine


def test_what_a_crash_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    half = f"{PRINT[:16]}-{'1' * 16}.77.part"
    (tmp_path / half).write_bytes(b"half")
    folder = StateFolder(tmp_path, 10_000, PRINT)
    writing = folder.write([1, 2], (), np.arange(100, dtype=np.uint8), 1.0)
    assert next(writing) is None
    folder.states()
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".part"
    assert left.name != half
    assert [stored is not None for stored in writing] == [True]
    assert len(folder.states()) == 1


def test_what_was_only_just_made_and_is_not_locked_yet_is_left_alone(tmp_path: Path) -> None:
    made = tmp_path / f"{PRINT[:16]}-{'1' * 16}.77.part"
    made.touch()
    folder = StateFolder(tmp_path, 10_000, PRINT)
    folder.states()
    assert made.exists()
    old = time.time() - STALE_S - 1
    os.utime(made, (old, old))
    folder.states()
    assert not made.exists()


def test_a_look_at_the_lock_does_not_keep_a_writer_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def looked_at(file: int, operation: int) -> None:
        """Take the lock as somebody does who has just come upon the file, for a moment."""
        monkeypatch.setattr(fcntl, "flock", flock)
        (path,) = tmp_path.iterdir()
        looking = os.open(path, os.O_RDONLY)
        flock(looking, fcntl.LOCK_EX)
        gone = threading.Timer(0.2, os.close, [looking])
        gone.start()
        try:
            flock(file, operation)
        finally:
            gone.join()

    monkeypatch.setattr(fcntl, "flock", looked_at)
    slices = write_slices(tmp_path / "state", header(), state())
    next(slices)
    (path,) = tmp_path.iterdir()
    assert is_being_written(path)
    slices.close()


def test_where_nothing_can_be_locked_age_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    names = [f"{PRINT[:16]}-{digit * 16}.77.part" for digit in "12"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    old = time.time() - STALE_S - 1
    os.utime(tmp_path / names[0], (old, old))
    folder = StateFolder(tmp_path, 10_000, PRINT)
    folder.states()
    assert [path.name for path in tmp_path.iterdir()] == names[1:]
    assert save(folder, [1, 2]) is not None


def test_a_writer_that_was_killed_leaves_nothing_for_long(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from clawd.engine.worker.statefolder import StateFolder\n"
        "folder = StateFolder(Path(sys.argv[1]), 10_000, sys.argv[2])\n"
        "writing = folder.write([1], (), np.arange(100, dtype=np.uint8), 1.0)\n"
        "next(writing)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path), PRINT]
    killed = subprocess.run(argv, cwd=Path(__file__).parents[3], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    assert StateFolder(tmp_path, 10_000, PRINT).states() == []
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_changed_since_it_was_listed_is_not_used(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, 10_000, PRINT)
    stored = save(folder, [1, 2])
    assert stored is not None
    data = bytearray(stored.path.read_bytes())
    data[-10] ^= 1
    stored.path.write_bytes(data)
    assert not folder.read(stored, np.zeros(1000, np.uint8))
    assert not stored.path.exists()


def test_the_quota_holds_and_the_least_recently_used_go(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, 3600, PRINT)
    foreign = save(StateFolder(tmp_path, 3600, OTHER), [9], used_at=50.0)
    for number in range(1, 6):
        assert save(folder, [number], used_at=100.0 * number) is not None
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3600
    kept = [stored.header.token_list() for stored in folder.states()]
    assert kept == [[5], [4], [3]]
    assert foreign is not None
    assert not foreign.path.exists()


def test_a_state_used_long_ago_pushes_nothing_newer_out(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, 2500, PRINT)
    save(folder, [1], used_at=200.0)
    save(folder, [2], used_at=300.0)
    assert save(folder, [3], used_at=100.0) is None
    assert [stored.header.token_list() for stored in folder.states()] == [[2], [1]]
    assert save(folder, [4], size=5000, used_at=900.0) is None


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow over 300 bytes: what writing to a full disk comes to.

    Only around the act itself: the report of the tests may be a file as well.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_no_more_costs_the_state_only(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, 10_000, PRINT)
    with full_disk():
        assert save(folder, [1]) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_costs_the_state_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = StateFolder(tmp_path / "file" / "prefix", 10_000, PRINT)
    assert folder.states() == []
    assert save(folder, [1]) is None


def test_a_fingerprint_changes_with_the_model_and_what_shapes_its_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" * 1000)
    os.utime(path, (1, 1))

    def taken(
        library: str = "1", architecture: str = "llama", n_ctx: int = 64, **options: object
    ) -> str:
        config = ModelConfig(path=str(path), **options)  # type: ignore[arg-type]
        return fingerprint(config, library=library, architecture=architecture, n_ctx=n_ctx)

    plain = taken()
    assert taken(n_parallel=9, alias="x", n_batch=1, prefix_cache_ram_mb=7) == plain
    assert taken(speculation="off") == plain
    others = {
        taken(library="2"),
        taken(architecture="qwen3"),
        taken(n_ctx=128),
        taken(cache_type_k="q8_0"),
        taken(flash_attn="on"),
        taken(rope_freq_scale=0.5),
    }
    os.utime(path, (2, 2))
    others.add(taken())
    path.write_bytes(b"GGUF" * 999 + b"gguf")
    os.utime(path, (1, 1))
    others.add(taken())
    assert len(others) == 8
    assert plain not in others


def test_a_fingerprint_changes_with_each_adapter_its_scale_and_its_file(tmp_path: Path) -> None:
    for name in ("model", "one", "two", "three"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF" + name.encode() * 100)
        os.utime(tmp_path / f"{name}.gguf", (1, 1))

    def taken(*adapters: tuple[str, float]) -> str:
        lora = tuple(
            LoraAdapter(path=str(tmp_path / f"{name}.gguf"), scale=scale)
            for name, scale in adapters
        )
        config = ModelConfig(path=str(tmp_path / "model.gguf"), lora=lora)
        return fingerprint(config, library="1", architecture="llama", n_ctx=64)

    one = taken(("one", 1.0))
    others = {
        taken(),
        taken(("one", 0.5)),
        taken(("two", 1.0)),
        taken(("one", 1.0), ("two", 1.0)),
        taken(("two", 1.0), ("one", 1.0)),
    }
    (tmp_path / "one.gguf").rename(tmp_path / "moved.gguf")
    assert taken(("moved", 1.0)) == one
    (tmp_path / "three.gguf").replace(tmp_path / "one.gguf")
    others.add(taken(("one", 1.0)))
    assert len(others) == 6
    assert one not in others
    with pytest.raises(FileNotFoundError):
        taken(("absent", 1.0))
