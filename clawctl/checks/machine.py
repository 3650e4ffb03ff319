"""Whether the machine has room, the right time, a free port, and units that run."""

import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from clawctl.checks.finding import Found, noted, ok, wrong
from clawctl.render import duration, size
from clawctl.systemctl import answer_of, is_booted_with_systemd
from clawd.paths import Layout

LEAST_BYTES = 256 * 2**20
FEW_BYTES = 2 * 2**30
SKEW_S = 120.0
EPOCH_S = 1_700_000_000  # the end of 2023: no clock was set right before
UNITS = ("clawd.socket", "clawd.service")


def disk(check: str, path: Path) -> Found:
    """Judge the room on the file system of a path, and whether it takes anything."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if place.is_dir() and (problem := _refuses(place)):
        return wrong(
            check,
            f"nothing can be written to {place}: {problem}",
            "See why (mount, dmesg): without it no receipt can be written, and so no tool runs.",
        )
    free = shutil.disk_usage(place).free
    if free < LEAST_BYTES:
        return wrong(
            check,
            f"only {size(free)} are free for {path}",
            "Make room: without it no receipt can be written, and so no tool runs.",
        )
    if free < FEW_BYTES:
        return noted(check, f"{size(free)} are free for {path}", "Make room before it is needed.")
    return ok(check, f"{size(free)} are free for {path}")


def _refuses(folder: Path) -> str:
    """Return why a file system takes no files, "" where it does or we may not try."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except PermissionError:
        return ""
    except OSError as error:
        return error.strerror or str(error)


def clock(where: Layout) -> Found:
    """Judge the clock by the newest of the own files, and by who keeps it."""
    now = time.time()
    newest = max((_changed_at(p) for p in (where.database, where.receipts, where.log)), default=0.0)
    if now < EPOCH_S:
        return wrong("clock", f"it says {time.strftime('%Y-%m-%d')}", _SET_CLOCK)
    if newest > now + SKEW_S:
        ahead = duration(newest - now)
        return wrong("clock", f"files of {where.home} were written {ahead} from now", _SET_CLOCK)
    told = answer_of("timedatectl", "show", "--property=NTPSynchronized")
    if is_booted_with_systemd() and told is not None and told.strip().endswith("=no"):
        return noted("clock", "nothing keeps it right", "Switch it on: timedatectl set-ntp true")
    return ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %Z"))


_SET_CLOCK = "Set the clock: receipts and approvals carry its time."


def port(host: str, number: int) -> Found:
    """Judge whether the gateway's port can be had, while no daemon has it."""
    if not number:
        return ok("gateway", "off: programs cannot connect by HTTP")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind((host, number))
        except OSError as error:
            return wrong(
                "gateway",
                f"port {number} of {host} cannot be had: {error.strerror}",
                "End what has it (ss -ltnp), or set another port in [channels.http].",
            )
    return ok("gateway", f"port {number} of {host} is free for it")


def units(where: Layout) -> Iterator[Found]:
    """Judge the units of systemd, where it runs and has some of ours."""
    if not is_booted_with_systemd():
        yield ok("service", "systemd does not run here; commands start a daemon when they need one")
        return
    scope = [] if where.is_system else ["--user"]
    for unit in UNITS:
        told = answer_of(
            "systemctl", *scope, "show", unit, "--property=LoadState,ActiveState,Result"
        )
        state = dict(line.split("=", 1) for line in (told or "").splitlines() if "=" in line)
        if state.get("LoadState") != "loaded":
            continue
        word = " ".join(["systemctl", *scope])
        if state.get("ActiveState") == "failed":
            why = state.get("Result", "")
            yield wrong(
                "service",
                f"{unit} failed ({why})",
                f"See why: {word} status {unit}; then {word} restart {unit}",
            )
        else:
            yield ok("service", f"{unit} is {state.get('ActiveState', 'unknown')}")


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
