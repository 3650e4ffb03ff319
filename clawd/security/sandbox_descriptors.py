"""The descriptors a sandbox is started with: its gate, its options, the files it is given."""

import os
from collections.abc import Iterable

from clawd.security.sandbox_plan import Slot


def endless_pipe() -> tuple[int, int]:
    """Return both ends of a pipe whose reader never sees its end, whoever dies.

    At the end of a plain pipe bubblewrap goes on as if it had been let go: a daemon that is killed
    would start what it holds. A reader that could write as well is a writer that lives. `confine`
    ends its command at the end of a plain one.
    """
    held, gate = os.pipe2(os.O_CLOEXEC)
    try:
        return os.open(f"/proc/self/fd/{held}", os.O_RDWR | os.O_CLOEXEC), gate
    except OSError:
        os.close(gate)
        raise
    finally:
        os.close(held)


def joined(options: Iterable[str | Slot], descriptors: dict[str, int]) -> bytes:
    """Return options as bubblewrap reads them, with descriptor numbers in their slots."""
    words = (str(descriptors[o.name]) if isinstance(o, Slot) else o for o in options)
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def memory_file(data: bytes) -> int:
    """Return a descriptor of a nameless file that holds the data, at its beginning."""
    descriptor = os.memfd_create("clawd", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
