"""Attempts to use more than is allowed. They run in the sandbox only: outside they would do harm.

Each prints that it escaped when it got more, or leaves `survived` behind when it outlived the
command. What is written in all, and how many files, may pass the limit by what fits between two
looks; so these have escaped when they got many times as much.
"""

from clawd.security.sandbox.plan import ResourceLimits
from tests.support.escape_attempts import Attempt, by_python, by_shell

_MIB = 1 << 20
LIMITS = ResourceLimits(
    memory_bytes=128 * _MIB,
    address_space_bytes=1024 * _MIB,
    processes=60,
    open_files=64,
    file_bytes=4 * _MIB,
    cpu_s=1,
    tmp_bytes=4 * _MIB,
    shm_bytes=4 * _MIB,
    disk_bytes=16 * _MIB,
    new_files=2_000,
)
_WRITES = (
    "data = b'x' * 1_000_000\n"
    "for n in range(200):\n"
    "    time.sleep(0.06)\n"
)  # fmt: skip
# As many as can be removed again in no time.
_SLOWLY = (
    "for n in range(20_000):\n"
    "    time.sleep(0.0005)\n"
)  # fmt: skip
_LATER = "sleep 0.4; echo > survived"


def _py(name: str, script: str) -> Attempt:
    imports = "import threading, time, mmap\n"
    return by_python(name, imports + script, control=False)._replace(limits=LIMITS)


def _sh(name: str, script: str, *, wait_s: float = 0.0) -> Attempt:
    return by_shell(name, script, control=False)._replace(limits=LIMITS, wait_s=wait_s)


RESOURCES = (
    _py("many-processes",
        "n = 0\n"
        "while n < 200:\n"
        "    if not os.fork(): time.sleep(60); os._exit(0)\n"
        "    n += 1\n"
        "escaped()"),
    _py("many-threads",
        "for n in range(200):\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "escaped()\nos._exit(0)"),
    _sh("fork-bomb", "b() { b | b & }; b; sleep 0.5"),
    # exec: a shell that cannot fork any more would wait, and the command with it.
    _sh("fork-bomb-that-survives", f"b() {{ b | b & {_LATER}; }}; b & exec sleep 0.2", wait_s=0.9),
    _py("much-memory", "bytearray(256 << 20); escaped()"),
    _py("much-memory-by-mmap", "mmap.mmap(-1, 256 << 20, mmap.MAP_PRIVATE); escaped()"),
    _py("much-shared-memory", "mmap.mmap(-1, 2 << 30); escaped()"),
    _py("much-system-v-memory",
        "k = call(29, 194, 0, 2 << 30, 0o1600)\n"
        "if k >= 0 and call(30, 196, k, 0, 0) > 0: escaped()"),
    _py("much-nameless-memory", "f = os.memfd_create('x')\nos.truncate(f, 64 << 20)\nescaped()"),
    _py("many-descriptors", "a = [os.open('/dev/null', 0) for n in range(200)]\nescaped()"),
    _py("much-processor-time", "while time.process_time() < 4: pass\nescaped()"),
    _sh("one-big-file",
        "head -c 8000000 /dev/zero > f; [ $(stat -c %s f) -gt 4194304 ] && escaped"),
    _sh("one-sparse-file", "truncate -s 1G f && escaped; dd of=f bs=1 seek=1G count=0 && escaped"),
    _sh("one-allocated-file", "fallocate -l 64M f && escaped"),
    _py("disk-full-of-files",
        _WRITES + "    open(f'f{n}', 'wb').write(data)\nescaped()"),
    _py("disk-full-of-nameless-files",
        _WRITES + "    if n % 4 == 0: f = open('f', 'wb'); os.unlink('f'); globals()[f'f{n}'] = f\n"
        "    f.write(data)\nescaped()"),
    _py("disk-full-of-empty-files",
        _SLOWLY + "    os.close(os.open(f'f{n}', os.O_CREAT))\nescaped()"),
    _py("disk-full-of-folders", _SLOWLY + "    os.mkdir(f'f{n}')\nescaped()"),
    _py("tmp-full-of-empty-files",
        _SLOWLY + "    os.close(os.open(f'/tmp/f{n}', os.O_CREAT))\nescaped()"),
    _sh("tmp-full",
        "for n in 1 2 3; do head -c 3000000 /dev/zero > /tmp/$n || exit; done; escaped"),
    _sh("shared-memory-full",
        "for n in 1 2 3; do head -c 3000000 /dev/zero > /dev/shm/$n || exit; done; escaped"),
    _sh("endless-output", "yes | head -c 300000000; echo > survived"),
    _sh("holds-the-pipe", f"( {_LATER} ) &", wait_s=0.7),
    _sh("ignores-signals", f"( trap '' TERM HUP INT; {_LATER} ) & kill -TERM $!", wait_s=0.7),
    _sh("is-stopped", "( kill -STOP $BASHPID; echo > survived ) & p=$!;"
        " ( sleep 0.4; kill -CONT $p ) & sleep 0.1", wait_s=0.8),
    _sh("twenty-survivors", "for n in $(seq 20); do setsid sh -c '( trap \"\" TERM HUP;"
        f" {_LATER} ) &' & done; sleep 0.1", wait_s=0.8),
)  # fmt: skip
