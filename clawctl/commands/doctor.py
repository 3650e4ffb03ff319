"""`clawctl doctor`: what protects this machine, what does not, and what to do about it."""

import errno
import ipaddress
import os
import platform
import re
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import click
import msgspec

from clawctl.app import App, Exit, json_command
from clawctl.client import Client, is_nobody
from clawctl.daemon import run_clawd
from clawctl.daemon_finder import holder_of, override_text, overrides
from clawctl.model_servers import answers
from clawctl.model_servers import answers as is_answered
from clawctl.receipt_bundle import remembered_head
from clawctl.render import Palette, duration, emit_json, say, size
from clawctl.systemctl import answer_of, is_booted_with_systemd
from clawd import __version__
from clawd.errors import ClawError
from clawd.kernel.files import changed_at
from clawd.paths import Layout, install_line, layout
from clawd.wire.daemon import Checkup, ListKeys, Status, StatusReport
from clawd.wire.mcp import ListMcpServers, McpServerList
from clawd.wire.models import ListLoadedModels, LoadedModelList
from clawd.wire.tools import ListTools, ToolList

_PYTHONS = ((3, 11), (3, 13))
_BINDING = "llama-cpp-python"
_BACKENDS = {"cuda": "NVIDIA CUDA", "hip": "AMD ROCm", "vulkan": "Vulkan", "sycl": "Intel SYCL"}
_GPU = (
    'Build it for the GPU, as in: CMAKE_ARGS="-DGGML_CUDA=on" '
    f"pip install --no-binary :all: {_BINDING}"
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")

LEAST_BYTES = 256 * 2**20
FEW_BYTES = 2 * 2**30
_SKEW_S = 120.0
_EPOCH_S = 1_700_000_000  # the end of 2023: no clock was set right before
_UNITS = ("clawd.socket", "clawd.service")

_PRIVATE_FILES = (
    "receipts.key", "checkpoint.key", "approval_rules.json", "memory.sqlite", "history",
    "plugin_pins.json", "mcp_tools.json", "clawd.log",
)  # fmt: skip
_KNOCK_S = 1.0

_State = Literal["ok", "note", "wrong"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at and how it stands; `fix` says what to do, "" where nothing is.

    `can_fix` tells that `doctor --fix` does it, `fixed` that it did.
    """

    check: str
    state: _State
    says: str
    fix: str = ""
    can_fix: bool = False
    fixed: bool = False


class MendableFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the act that mends it, where there is a safe one."""

    finding: Finding
    mend: Callable[[], None] | None = None


def ok(check: str, says: str) -> MendableFinding:
    """Return that all is well."""
    return MendableFinding(finding=Finding(check=check, state="ok", says=says))


def noted(check: str, says: str, fix: str = "") -> MendableFinding:
    """Return what is worth knowing and no fault."""
    return MendableFinding(finding=Finding(check=check, state="note", says=says, fix=fix))


def wrong(
    check: str, says: str, fix: str, mend: Callable[[], None] | None = None
) -> MendableFinding:
    """Return what is wrong, what to do, and how `--fix` does it."""
    finding = Finding(check=check, state="wrong", says=says, fix=fix, can_fix=mend is not None)
    return MendableFinding(finding=finding, mend=mend)


BUBBLEWRAP = (
    "Install bubblewrap and allow unprivileged user namespaces (on Ubuntu by an AppArmor profile)."
)


def findings(where: Layout, *, daemon_runs: bool) -> Iterator[MendableFinding]:
    """Judge what can be judged here; what a running daemon says better of itself is left to it."""
    yield from _of_installation()
    yield from of_files(where)
    facts = _facts()
    if facts is None:
        yield wrong("config", "clawd itself cannot be run", "Run it to see why: clawd --checkup")
    elif facts.problems:
        yield from _bad_config(facts)
    else:
        yield from _by_config(where, facts, daemon_runs=daemon_runs)
    yield disk("disk", where.home)
    yield _clock(where)
    yield from _units(where)


def sandbox(level: str, layers: tuple[str, ...], reason: str) -> MendableFinding:
    """Judge what holds commands, as a daemon or a trial found it."""
    named = ", ".join(layers)
    if level == "none":
        return wrong("sandbox", reason or "there is none", BUBBLEWRAP)
    if reason:
        return noted("sandbox", f"{level} ({named}): {reason}", BUBBLEWRAP)
    return ok("sandbox", f"{level} ({named})")


def toolchains(shown: tuple[str, ...], left_out: tuple[str, ...]) -> MendableFinding:
    """Tell what commands see of the person's programs."""
    says = f"commands see {', '.join(shown)}" if shown else "commands see those of the system"
    if not left_out:
        return ok("toolchains", says)
    return noted(
        "toolchains",
        f"{says}; left out of PATH are {'; '.join(left_out)}",
        "Name the folders that commands shall see in toolchains of [sandbox].",
    )


def hooks(notified: tuple[str, ...], missing: tuple[str, ...]) -> MendableFinding:
    """Report which programs of the owner are notified of calls and turns."""
    if missing:
        return wrong(
            "hooks",
            f"no program is there for {'; '.join(missing)}: before_tool refuses every call without",
            "Put it there with the right to be run, or mend [hooks] of the config.",
        )
    return ok("hooks", "; ".join(notified))


def user(pid: int) -> MendableFinding:
    """Judge whom a daemon runs as, or would when it is started from here (pid 0)."""
    import psutil

    try:
        uid = psutil.Process(pid).uids().effective if pid else os.getuid()
    except psutil.Error:
        return ok("user", "that of another process namespace")
    if uid != 0:
        return ok("user", f"clawd runs as uid {uid}")
    return noted(
        "user",
        "clawd runs as root: in its sandboxes, what the kernel allows root needs no capability",
        "Run it as a user of your own, or by the system's unit, which makes a user for it.",
    )


def _facts() -> Checkup | None:
    done = run_clawd(["--checkup", "--json"], capture=True)
    try:
        return msgspec.json.decode(done.stdout, type=Checkup)
    except msgspec.DecodeError:
        return None


def _bad_config(facts: Checkup) -> Iterator[MendableFinding]:
    if not facts.config_exists:
        yield noted("config", f"there is no {facts.config}", "Write one: clawctl init")
        return
    for problem in facts.problems:
        yield wrong("config", problem, facts.hint or "Correct it: clawctl config edit")


def _by_config(where: Layout, facts: Checkup, *, daemon_runs: bool) -> Iterator[MendableFinding]:
    if facts.config_exists:
        yield ok("config", f"{facts.config} is valid")
    else:
        yield noted(
            "config",
            f"there is no {facts.config}; the built-in values are in force",
            "Write one with every key in it: clawctl init",
        )
    yield _folder("workspace", Path(facts.workspace))
    yield from _model(facts)
    if not where.is_system:  # the system's daemon is a user of its own, with programs of its own
        yield toolchains(facts.toolchains, facts.toolchains_left_out)
    if facts.old_networks:
        yield noted(
            "mcp network",
            f"network = true of {', '.join(facts.old_networks)} is old: it means every public "
            "host, by the egress proxy, and no longer this machine's own network",
            'Write hosts = ["HOST:PORT", …], or hosts = ["*"], in [mcp.servers.<alias>].',
        )
    if facts.hooks:
        yield hooks(facts.hooks, facts.hooks_missing)
    if daemon_runs:
        return
    yield sandbox(facts.sandbox, facts.sandbox_layers, facts.sandbox_reason)
    if not where.is_system:  # the system's daemon has a user of its own
        yield user(0)
    yield _port(*facts.gateway)
    yield _chain(Path(facts.receipts), Path(facts.memory), is_on=facts.receipts_enabled)
    yield _stop(where)


def _model(facts: Checkup) -> Iterator[MendableFinding]:
    if facts.key_variable:
        yield noted(
            "provider",
            f"{facts.provider} wants its key in {facts.key_variable}, which is not set here",
            f"Set it where the daemon starts: export {facts.key_variable}=…",
        )
    if facts.provider_url and not is_answered(facts.provider_url):
        yield wrong(
            "provider",
            f"{facts.provider}: nobody answers at {facts.provider_url}",
            "Start that server, or choose another one: clawctl onboard",
        )
        return
    if facts.model_problem:
        yield wrong(
            "model",
            facts.model_problem,
            facts.model_hint
            or "Answer from another: clawctl model use NAME, or get it: clawctl model pull REF.",
        )
    elif facts.model:
        form = f": {facts.model_form}" if facts.model_form else ""
        yield ok("model", f"{facts.model} is there for provider {facts.provider}{form}")
    else:
        yield ok("model", f"provider {facts.provider} ({facts.provider_kind})")


def _chain(log: Path, memory: Path, *, is_on: bool) -> MendableFinding:
    if not is_on:
        return wrong(
            "receipts",
            "they are switched off: nothing is recorded",
            "Set enabled = true in [receipts].",
        )
    if not log.exists():
        return ok("receipts", "none yet")
    from clawd.receipts.verify import verify

    try:
        found = verify(log, anchor=remembered_head(memory))
    except ClawError as error:
        return wrong("receipts", error.message, "Look at the log: clawctl receipt verify")
    if not found.ok:
        return wrong("receipts", found.message, "See what is broken: clawctl receipt verify")
    return ok("receipts", f"{found.receipts} in the chain, which stands (level {found.level})")


def _stop(where: Layout) -> MendableFinding:
    if not where.estop.exists():
        return ok("emergency stop", "not set")
    return noted("emergency stop", "set", "Allow tools again: clawctl estop --clear")


# Whether home, config, keys, lock and socket are closed to others, and none of them stale.


def of_files(where: Layout) -> Iterator[MendableFinding]:
    """Judge the files of a home."""
    if not where.home.exists():
        yield wrong(
            "home",
            f"there is no {where.home}",
            "Set it up with clawctl init, or all of it with clawctl onboard.",
            partial(where.home.mkdir, mode=0o700, parents=True),
        )
        return
    try:
        yield from _home(where)
        yield from _private(where)
        yield from _socket(where)
    except PermissionError as error:
        yield noted(
            "home",
            f"{error.filename} may not be read by you",
            f"Look at it as its owner: sudo -u '#{_owner(where.home)}' clawctl doctor",
        )


def _folder(check: str, path: Path) -> MendableFinding:
    """Judge a folder that the config names and that must be there to be worked in."""
    if not path.exists():
        return wrong(
            check,
            f"there is no {path}",
            f"Make it: mkdir -p {path}",
            partial(path.mkdir, parents=True, exist_ok=True),
        )
    if not path.is_dir():
        return wrong(
            check, f"{path} is not a folder", "Move it away, or name another in the config."
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return noted(check, f"{path} may not be written by you", f"Look at: ls -ld {path}")
    return ok(check, str(path))


def _home(where: Layout) -> Iterator[MendableFinding]:
    about = where.home.stat()
    if about.st_mode & 0o077 and not where.is_system:
        yield wrong(
            "home",
            f"others can look into {where.home} (mode {stat.S_IMODE(about.st_mode):04o})",
            f"Close it: chmod 700 {where.home}",
            _closing(where.home, 0o700),
        )
    elif about.st_uid not in {os.geteuid(), 0} and os.geteuid() != 0:
        yield noted("home", f"{where.home} belongs to uid {about.st_uid}, not to you")
    else:
        yield ok("home", str(where.home))


def _private(where: Layout) -> Iterator[MendableFinding]:
    good = 0
    for path in (where.config, *(where.home / name for name in _PRIVATE_FILES)):
        if not path.exists():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        least = 0o640 if where.is_system and path == where.config else 0o600
        if mode & 0o077 & ~least:
            yield wrong(
                "permissions",
                f"others can read or write {path} (mode {mode:04o})",
                f"Close it: chmod {least:o} {path}",
                _closing(path, least),
            )
        else:
            good += 1
    if good:
        yield ok("permissions", f"{good} private files are closed to others")


def _socket(where: Layout) -> Iterator[MendableFinding]:
    path = where.socket
    pid = holder_of(where.lock)
    if path.parent.exists() and not where.is_system:
        mode = stat.S_IMODE(path.parent.stat().st_mode)
        if mode & 0o077:
            yield wrong(
                "socket",
                f"others can reach into {path.parent} (mode {mode:04o})",
                f"Close it: chmod 700 {path.parent}",
                _closing(path.parent, 0o700),
            )
    if not path.exists():
        if pid is not None:
            yield wrong(
                "socket",
                f"a daemon runs (pid {pid or '?'}), and its socket {path} is gone",
                f"Restart it: kill {pid or '?'}, then clawctl status",
            )
        else:
            yield ok("socket", f"{path} is made when a daemon starts")
    elif not _answers(path) and pid is None:
        yield wrong(
            "socket",
            f"{path} was left behind by a daemon that ended",
            f"Remove it: rm {path} (the next daemon does so by itself)",
            partial(_remove_stale, path, where.lock),
        )
    else:
        yield ok("socket", str(path))


def _remove_stale(path: Path, lock: Path) -> None:
    # Looked at again: a daemon may have started since.
    if holder_of(lock) is None and not _answers(path):
        path.unlink(missing_ok=True)


def _closing(path: Path, mode: int) -> Callable[[], None] | None:
    """Return what closes a path that is ours; None for one of somebody else."""
    judged = path.stat()
    if os.geteuid() not in {0, judged.st_uid} or path.is_symlink():
        return None
    return partial(_close, path, mode, judged)


def _close(path: Path, mode: int, judged: os.stat_result) -> None:
    """Close what was judged, and nothing that took its place: a link would lead root elsewhere."""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        # A number is given away again at once: a link may have that of the file that it replaced.
        is_same = os.path.samestat(about, judged) and about.st_mode == judged.st_mode
        if not is_same:
            raise OSError(errno.ESTALE, "it was replaced meanwhile", str(path))
        # What O_PATH opened takes no fchmod.
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(_KNOCK_S)
        try:
            knocking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # something is there that will not talk to us
    return True


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return 0


# Whether the machine has room, the right time, a free port, and units that run.


def disk(check: str, path: Path) -> MendableFinding:
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


def _clock(where: Layout) -> MendableFinding:
    """Judge the clock by the newest of the own files, and by who keeps it."""
    now = time.time()
    newest = max((changed_at(p) for p in (where.database, where.receipts, where.log)), default=0.0)
    if now < _EPOCH_S:
        return wrong("clock", f"it says {time.strftime('%Y-%m-%d')}", _SET_CLOCK)
    if newest > now + _SKEW_S:
        ahead = duration(newest - now)
        return wrong("clock", f"files of {where.home} were written {ahead} from now", _SET_CLOCK)
    output = answer_of("timedatectl", "show", "--property=NTPSynchronized")
    if is_booted_with_systemd() and output is not None and output.strip().endswith("=no"):
        return noted("clock", "nothing keeps it right", "Switch it on: timedatectl set-ntp true")
    return ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %Z"))


_SET_CLOCK = "Set the clock: receipts and approvals carry its time."


def _port(host: str, number: int) -> MendableFinding:
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


def _units(where: Layout) -> Iterator[MendableFinding]:
    """Judge the units of systemd, where it runs and has some of ours."""
    if not is_booted_with_systemd():
        yield ok("service", "systemd does not run here; commands start a daemon when they need one")
        return
    scope = [] if where.is_system else ["--user"]
    for unit in _UNITS:
        output = answer_of(
            "systemctl", *scope, "show", unit, "--property=LoadState,ActiveState,Result"
        )
        state = dict(line.split("=", 1) for line in (output or "").splitlines() if "=" in line)
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


# Whether what clawd is made of is there: Python, its libraries, llama.cpp and what it runs on.


def _of_installation() -> Iterator[MendableFinding]:
    """Judge the installation."""
    python = platform.python_version()
    where = Path(__file__).parent
    if _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        yield ok("install", f"clawctl {__version__} on Python {python}, in {where}")
    else:
        yield noted(
            "install",
            f"clawctl {__version__} on Python {python}, which it is not tested with",
            "Use Python 3.11, 3.12 or 3.13.",
        )
    yield _libraries()
    yield _engine()


def _libraries() -> MendableFinding:
    try:
        wanted = metadata.requires("clawd") or []
    except metadata.PackageNotFoundError:
        return noted("libraries", "clawd runs from a checkout that is not installed")
    missing = [name for name in map(_plain_name, wanted) if name and not _is_there(name)]
    if not missing:
        return ok("libraries", f"all {sum(map(bool, map(_plain_name, wanted)))} are there")
    return wrong(
        "libraries",
        f"not installed: {', '.join(missing)}",
        "Install clawd anew, with its dependencies.",
    )


def _plain_name(requirement: str) -> str:
    """Return the package that a requirement names; "" for one of an extra or another platform."""
    if ";" in requirement:
        return ""
    found = _NAME.match(requirement)
    return found[0] if found else ""


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _engine() -> MendableFinding:
    spec = find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        return noted(
            "llama.cpp",
            f"{_BINDING} is not installed: no model can answer on this machine",
            f"Install it with: {install_line('local')}, or use a server as provider.",
        )
    try:
        version = metadata.version(_BINDING)
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    folder = Path(next(iter(spec.submodule_search_locations))) / "lib"
    libraries = " ".join(path.name for path in folder.glob("libggml-*"))
    built = [label for key, label in _BACKENDS.items() if f"libggml-{key}" in libraries]
    if find_spec("llguidance") is None:
        return noted(
            "llama.cpp",
            f"{_BINDING} {version} is there without llguidance: no answer can be held to a schema",
            f"Install it with: {install_line('local')}",
        )
    card = Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists()
    says = f"{_BINDING} {version}, built for {', '.join(['the CPU', *built])}"
    if card and not built:
        return noted("llama.cpp", f"{says}; this machine has a GPU that it does not use", _GPU)
    return ok("llama.cpp", says)


@click.command()
@click.option("--fix", is_flag=True, help="Do what is safe: permissions, folders, a stale socket.")
@json_command(list[Finding])
def command(app: App, *, fix: bool, as_json: bool) -> int:
    """Check the installation, and say what to do about what is wrong. Needs no daemon.

    Looks at versions, config, permissions, sandbox, model, port, disk, clock, units and the receipt
    chain, and at the daemon when one runs. Ends with 1 when something is wrong; a note is no fault.
    """
    client, problem = _running(app)
    found = list(findings(layout(), daemon_runs=client is not None))
    found += _of_daemon(client, problem)
    mended = [_mended(each, says=not as_json) if fix else each.finding for each in found]
    if as_json:
        emit_json(mended)
    else:
        _show(mended, was_fixed=fix)
    is_bad = any(each.state == "wrong" and not each.fixed for each in mended)
    return Exit.FAILED if is_bad else Exit.DONE


def _running(app: App) -> tuple[Client | None, ClawError | None]:
    try:
        return app.running_client(), None
    except ClawError as error:
        return None, None if is_nobody(error) else error


def _of_daemon(client: Client | None, problem: ClawError | None) -> Iterator[MendableFinding]:
    if problem is not None:
        yield wrong("daemon", problem.message, problem.hint)
    if client is None:
        if problem is None:
            says = "none runs; the first command that needs one starts it"
            yield ok("daemon", says)
        return
    try:
        with client:
            report = client.call(Status())
            yield from of_report(report)
            for each in overrides(client, os.environ):
                yield wrong(
                    "environment",
                    f"the running daemon was started without it: {override_text(each)}",
                    "Start it anew with this environment: clawctl restart, or set it in the "
                    "config.",
                )
            yield tools(client.call(ListTools()))
            yield gateway(report, len(client.call(ListKeys()).items))
            yield from servers(client.call(ListMcpServers()))
            yield from templates(client.call(ListLoadedModels()))
    except ClawError as error:
        fix = error.hint or "See its log: clawctl logs"
        yield wrong("daemon", error.message, fix)


def _mended(found: MendableFinding, *, says: bool) -> Finding:
    """Mend what can be mended safely, after saying what."""
    if found.mend is None:
        return found.finding
    if says:
        say(f"{found.finding.check}: {found.finding.says}\n  → doing: {found.finding.fix}")
    try:
        found.mend()
    except OSError as error:
        text = f"{found.finding.says}; it could not be mended: {error.strerror or error}"
        return msgspec.structs.replace(found.finding, says=text)
    return msgspec.structs.replace(found.finding, fixed=True)


def _show(found: list[Finding], *, was_fixed: bool) -> None:
    palette = Palette.of(sys.stdout)
    marks = {"ok": palette.green("✓"), "note": palette.yellow("·"), "wrong": palette.red("✗")}
    for each in found:
        print(f"{palette.green('✓') if each.fixed else marks[each.state]} ", end="")
        say(f"{each.check}: {each.says}{' (mended)' if each.fixed else ''}")
        if each.fix and not each.fixed:
            say(f"  → {each.fix}")
    bad = sum(each.state == "wrong" and not each.fixed for each in found)
    notes = sum(each.state == "note" for each in found)
    text = "Nothing is wrong" if not bad else "1 thing is wrong" if bad == 1 else f"{bad} are wrong"
    if bad and not was_fixed and any(each.can_fix for each in found):
        text += "; clawctl doctor --fix mends what it can"
    print(f"\n{text}, {notes} to know." if notes else f"\n{text}.")


def of_report(report: StatusReport) -> Iterator[MendableFinding]:
    """Judge what the daemon says of itself."""
    yield _daemon(report)
    yield user(report.pid)
    yield sandbox(report.sandbox, report.sandbox_layers, report.sandbox_reason)
    if report.sandbox_unbounded:
        yield noted(
            "limits",
            "not bounded: " + ", ".join(report.sandbox_unbounded),
            "Run clawd under systemd with Delegate=yes, as its units do.",
        )
    for worker in report.workers:
        if worker.fence in {"none", "off"}:
            yield noted(
                f"model {worker.alias}",
                "its process may do what clawd may",
                'Set fence = "auto" in [engine], or use a kernel with Landlock or seccomp.',
            )
    yield _receipts(report)
    if report.rules_problem:
        yield wrong(
            "approval rules",
            report.rules_problem,
            "Correct or remove approval_rules.json in the home, then reload clawd.",
        )
    yield _estop(report)


def _daemon(report: StatusReport) -> MendableFinding:
    if report.problem:
        return wrong(
            "daemon",
            report.problem,
            "Look at clawctl logs, then restart clawd or put a backup of memory in its place.",
        )
    if report.version == __version__:
        return ok("daemon", f"{report.version}, pid {report.pid}")
    return noted(
        "daemon",
        f"it is {report.version}, this clawctl is {__version__}",
        "Restart clawd, so that both are of one version.",
    )


def _receipts(report: StatusReport) -> MendableFinding:
    if not report.receipts_enabled:
        return wrong(
            "receipts",
            "they are switched off: nothing is recorded",
            "Set enabled = true in [receipts].",
        )
    if report.receipts_problem:
        return wrong(
            "receipts", report.receipts_problem, "Look at the log with clawctl receipt verify."
        )
    return ok("receipts", f"{report.receipts} in the chain")


def tools(listed: ToolList) -> MendableFinding:
    """Judge the tools that others wrote."""
    refused = [each for each in listed.problems if each.severity == "refused"]
    if not listed.problems:
        added = sum(each.source != "builtin" for each in listed.items)
        return ok("tools of others", f"{added} loaded")
    first, doubtful = (refused or listed.problems)[0], len(listed.problems) - len(refused)
    says = f"{len(refused)} left out, {doubtful} doubtful; {first.file}: {first.reason}"
    judged = wrong if refused else noted
    return judged("tools of others", says, "Look at all of them with clawctl tool problems.")


def gateway(report: StatusReport, keys: int) -> MendableFinding:
    """Judge where the HTTP gateway listens, and whether it can be reached from here."""
    if not report.gateway:
        return ok("gateway", "off: programs cannot connect by HTTP")
    addresses = report.gateway.split(", ")
    silent = [address for address in addresses if not answers(address)]
    if silent:
        return wrong(
            "gateway",
            f"{', '.join(silent)} does not answer",
            "Look at the log of clawd, and at the firewall of this machine.",
        )
    text = f"{report.gateway}, keys: {keys}"
    exposed = [address for address in addresses if not _is_loopback(address)]
    if not exposed:
        return ok("gateway", f"{text}; this machine only")
    if all(address.startswith("https:") for address in exposed):
        return ok("gateway", f"{text}; other machines by TLS")
    return noted(
        "gateway",
        f"{text}; other machines reach it, and without TLS keys can be read on the way",
        "Set tls_cert and tls_key in [channels.http], or listen on 127.0.0.1.",
    )


def servers(listed: McpServerList) -> Iterator[MendableFinding]:
    """Judge the MCP servers: one that is down is a note, for the daemon tries it again."""
    for each in listed.items:
        check = f"MCP server {each.alias}"
        if each.changed:
            yield noted(
                check,
                f"it changed {', '.join(each.changed)} since they were first seen",
                f"Look at them, which shows how to accept them: clawctl mcp diff {each.alias}.",
            )
        elif each.link == "ready" and each.reach_problem:
            yield noted(
                check,
                each.reach_problem,
                f"List what it needs as hosts in [mcp.servers.{each.alias}], and reload.",
            )
        elif each.link == "ready":
            yield ok(check, f"{each.tools} tools")
        elif each.link == "waiting":
            yield noted(
                check,
                each.problem or "it does not answer, and is tried again",
                f"Try it now with clawctl mcp connect {each.alias}.",
            )
        else:
            yield ok(check, each.link)


def templates(loaded: LoadedModelList) -> Iterator[MendableFinding]:
    """Judge how the chat templates of the models in memory took what they were given so far."""
    for model in loaded.items:
        check = f"chat template {model.name}"
        for remark in model.template_notes:
            yield noted(
                check,
                remark,
                "It works so; a newer file of the model may have a template without the fault.",
            )
        if model.state == "ready" and not model.template_notes:
            yield ok(check, "used as it is")


def _estop(report: StatusReport) -> MendableFinding:
    if not report.estop:
        return ok("emergency stop", "not set")
    return noted(
        "emergency stop",
        f"set: {report.estop_reason}" if report.estop_reason else "set",
        "Allow tools again with clawctl estop --clear.",
    )


def _is_loopback(address: str) -> bool:
    """Return whether an address can be reached from this machine alone; a name counts as no."""
    try:
        return ipaddress.ip_address(urlsplit(address).hostname or "").is_loopback
    except ValueError:
        return False
