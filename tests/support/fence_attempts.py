"""What a hostile model might do in the worker, tried in a process behind the worker's fence.

    BASE=… PORT=… python -m tests.support.fence_attempts < config.json

Prints a JSON object: by the name of the attempt why it failed, "" when it did not.
"""

import ctypes
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from clawd.engine.protocol import ModelConfig
from clawd.engine.worker.lockdown import raise_fence
from clawd.kernel.syscalls import NUMBERS, system_call

BASE = Path(os.environ.get("BASE", "/"))
HOME = BASE / "home"
CACHE = BASE / "prefix"
CALLS = NUMBERS.get(os.uname().machine, {})


def read_config() -> None:
    (HOME / "config.toml").read_bytes()


def read_memory() -> None:
    (HOME / "memory.sqlite").read_bytes()


def read_ssh_key() -> None:
    (HOME / ".ssh" / "id_ed25519").read_bytes()


def read_by_link() -> None:
    (CACHE / "link").symlink_to(HOME / "config.toml")
    try:
        (CACHE / "link").read_bytes()
    finally:
        (CACHE / "link").unlink()


def read_other_model() -> None:
    (HOME / "other.gguf").read_bytes()


def list_home() -> None:
    list(HOME.iterdir())


def list_processes() -> None:
    list(Path("/proc").iterdir())


def read_parents_command_line() -> None:
    Path(f"/proc/{os.getppid()}/cmdline").read_bytes()


def write_model() -> None:
    (BASE / "model.gguf").open("r+b").close()


def write_elsewhere() -> None:
    (HOME / "new").write_bytes(b"x")
    (HOME / "new").unlink()


def write_temporary() -> None:
    path = Path("/tmp/clawd-fence-attempt")
    path.write_bytes(b"x")
    path.unlink()


def remove_model() -> None:
    copy = BASE / "copy"
    try:
        copy.hardlink_to(BASE / "model.gguf")
    finally:
        copy.unlink(missing_ok=True)


def change_mode() -> None:
    (HOME / "other.gguf").chmod(0o600)


def change_times() -> None:
    os.utime(HOME / "other.gguf", (1, 1))


def connect_tcp() -> None:
    socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 2).close()


def send_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(b"x", ("127.0.0.1", 9))


def connect_unix() -> None:
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(str(HOME / "clawd.sock"))


def make_pair() -> None:
    for end in socket.socketpair():
        end.close()


def listen() -> None:
    socket.create_server(("127.0.0.1", 0)).close()


def run_program() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    assert os.waitpid(child, 0)[1] == 0


def fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def signal_parent() -> None:
    os.kill(os.getppid(), 0)


def new_session() -> None:
    # A session leader may not lead another; the number is what the filter looks at.
    try:
        os.setpgid(0, 0)
    except PermissionError:
        if os.getpgid(0) != os.getpid():
            raise


def inspect_parent_limits() -> None:
    system_call(CALLS["prlimit64"], os.getppid(), 0, None, ctypes.create_string_buffer(16))


def hold_parent() -> None:
    os.close(os.pidfd_open(os.getppid()))


def share_memory() -> None:
    system_call(CALLS["shmctl"], system_call(CALLS["shmget"], 0, 4096, 0o600), 0, None)


def use_keyring() -> None:
    system_call(CALLS["keyctl"], 0, -3, 1)


def read_model() -> None:
    (BASE / "model.gguf").read_bytes()


def keep_a_state() -> None:
    part = CACHE / "a.part"
    part.write_bytes(b"x")
    part.rename(CACHE / "a.kv")
    assert CACHE / "a.kv" in list(CACHE.iterdir())
    with (CACHE / "a.kv").open("rb") as file:
        os.utime(file.fileno(), (5, 5))
    (CACHE / "a.kv").unlink()


def read_own_size() -> None:
    Path("/proc/self/statm").read_bytes()


def read_processors() -> None:
    Path("/proc/cpuinfo").read_bytes()
    list(Path("/sys/devices/system/cpu").iterdir())


def use_a_thread() -> None:
    thread = threading.Thread(target=read_own_size)
    thread.start()
    thread.join()


def import_late() -> None:
    import numpy

    assert numpy.ones((64, 64)).dot(numpy.ones((64, 64))).sum() == 64**3


def draw_randomness() -> None:
    Path("/dev/urandom").open("rb").close()


FORBIDDEN: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        read_config, read_memory, read_ssh_key, read_by_link, read_other_model, list_home,
        list_processes, read_parents_command_line, write_model, write_elsewhere,
        write_temporary, remove_model, change_mode, change_times, connect_tcp, send_udp,
        connect_unix, make_pair, listen, run_program, fork, signal_parent, new_session,
        inspect_parent_limits, hold_parent, share_memory, use_keyring,
    )
}  # fmt: skip
ALLOWED: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        read_model, keep_a_state, read_own_size, read_processors, use_a_thread, import_late,
        draw_randomness,
    )
}  # fmt: skip


def main() -> None:
    """Raise the fence of the config on standard input, then try everything."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=ModelConfig)
    CACHE.mkdir(exist_ok=True)
    raise_fence(config)
    said: dict[str, str] = {}
    for name, attempt in (FORBIDDEN | ALLOWED).items():
        try:
            attempt()
        except (OSError, AssertionError, ImportError) as error:
            said[name] = repr(error)
        else:
            said[name] = ""
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
