"""The part of /etc that a command sees and that is no copy of the host's: one user, no names."""

import os

NOBODY = 65534


def inner_id(host_id: int) -> int:
    """Root outside is nobody inside; everybody else keeps their number."""
    return host_id or NOBODY


def etc_files() -> dict[str, bytes]:
    """Return the made-up part of /etc: one user, no names of the host's."""
    uid, gid = inner_id(os.getuid()), inner_id(os.getgid())
    users = [f"sandbox:x:{uid}:{gid}:sandbox:/tmp:/bin/sh", "root:x:0:0:root:/:/usr/sbin/nologin"]
    groups = [f"sandbox:x:{gid}:", "root:x:0:"]
    if NOBODY not in {uid, gid}:
        users.append(f"nobody:x:{NOBODY}:{NOBODY}:nobody:/:/usr/sbin/nologin")
        groups.append(f"nogroup:x:{NOBODY}:")
    return {
        "/etc/passwd": "\n".join([*users, ""]).encode(),
        "/etc/group": "\n".join([*groups, ""]).encode(),
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
        "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    }
