"""Where clawd keeps things: home, config, socket and workspace. The one module that knows.

                  user mode                                      system mode
    home          ~/.clawd or $CLAWD_HOME                        /var/lib/clawd
    config        <home>/config.toml                             /etc/clawd/config.toml
    socket        $XDG_RUNTIME_DIR/clawd/clawd.sock, for         /run/clawd/clawd.sock
                  another home <home>/run/clawd.sock
    workspace     ~/clawd-workspace                              /var/lib/clawd/workspace

System mode is in force when the home is /var/lib/clawd.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SYSTEM_HOME = Path("/var/lib/clawd")
SYSTEM_CONFIG = Path("/etc/clawd/config.toml")
SYSTEM_SOCKET = Path("/run/clawd/clawd.sock")
MAX_SOCKET_PATH_BYTES = 107
NO_HOME = Path("/nonexistent")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Absolute paths of one clawd. Nothing is created by asking."""

    home: Path
    config: Path
    socket: Path
    workspace: Path
    is_system: bool

    @property
    def database(self) -> Path:
        """Memory, intents and the chain's head."""
        return self.home / "memory.sqlite"

    @property
    def receipts(self) -> Path:
        """The receipt chain."""
        return self.home / "tool_receipts.log"

    @property
    def secret_key(self) -> Path:
        """The key that tags secrets before hashing (0600)."""
        return self.home / "receipts.key"

    @property
    def checkpoint_key(self) -> Path:
        """The private key that signs the chain's next checkpoint (0600)."""
        return self.home / "checkpoint.key"

    @property
    def checkpoint_public_key(self) -> Path:
        """The chain's first public key, to copy elsewhere."""
        return self.home / "checkpoint.pub"

    @property
    def approval_rules(self) -> Path:
        """Rules that a person gave with `always` (0600)."""
        return self.home / "approval_rules.json"

    @property
    def wakes_at(self) -> Path:
        """When the next schedule begins, in seconds since 1970, for a timer of systemd."""
        return self.home / "wakes_at"

    @property
    def undo(self) -> Path:
        """Old contents of files that tools changed (0700)."""
        return self.home / "undo"

    @property
    def snapshots(self) -> Path:
        """What workspaces hold, kept so that undo covers commands (0700)."""
        return self.home / "snapshots"

    @property
    def knowledge(self) -> Path:
        """Markdown notes that the model keeps (0700)."""
        return self.home / "knowledge"

    @property
    def estop(self) -> Path:
        """The emergency stop: set while the file exists."""
        return self.home / "ESTOP"

    @property
    def log(self) -> Path:
        """Log of a daemon that a client started."""
        return self.home / "clawd.log"

    @property
    def lock(self) -> Path:
        """Held by the one daemon of this home; contains its pid."""
        return self.home / "clawd.lock"

    @property
    def stopped(self) -> Path:
        """Is there while nobody has started again what a person stopped."""
        return self.home / "clawctl.stopped"

    @property
    def models(self) -> Path:
        """GGUF files found by name."""
        return self.home / "models"

    @property
    def external_tools(self) -> Path:
        """Manifests of external tools."""
        return self.home / "tools"

    @property
    def plugins(self) -> Path:
        """Installed plugins, a folder each (0700)."""
        return self.home / "plugins"

    @property
    def plugin_pins(self) -> Path:
        """What of each plugin was approved (0600)."""
        return self.home / "plugin_pins.json"

    @property
    def skills(self) -> Path:
        """Skills of the owner, a folder each (0700)."""
        return self.home / "skills"

    @property
    def agents(self) -> Path:
        """Agents of the owner that helpers may be, a Markdown file each (0700)."""
        return self.home / "agents"

    @property
    def commands(self) -> Path:
        """Commands of the owner that stand for a message, a Markdown file each (0700)."""
        return self.home / "commands"

    @property
    def skill_pins(self) -> Path:
        """What of each workspace's skills, agents and commands was trusted (0600)."""
        return self.home / "skill_pins.json"

    @property
    def sops(self) -> Path:
        """Procedures of the owner, a folder each (0700)."""
        return self.home / "sops"

    @property
    def sop_pins(self) -> Path:
        """What of each workspace's procedures was enabled (0600)."""
        return self.home / "sop_pins.json"

    @property
    def mcp(self) -> Path:
        """What is kept about MCP servers: tokens, what they print on standard error (0700)."""
        return self.home / "mcp"

    @property
    def mcp_pins(self) -> Path:
        """What was first seen of each tool of MCP servers (0600)."""
        return self.home / "mcp_tools.json"

    @property
    def cache(self) -> Path:
        """What may be deleted at any time."""
        return self.home / "cache"


def expanded(text: str | Path) -> Path:
    """Return the path with ~ filled in; the ~ of an unknown user stays as it is."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises RuntimeError


def layout(environ: Mapping[str, str] | None = None) -> Layout:
    """Return the layout that the environment asks for (CLAWD_HOME, CLAWD_SOCKET)."""
    env = os.environ if environ is None else environ
    default_home = user_home(env) / ".clawd"
    chosen = env.get("CLAWD_HOME")
    home = expanded(chosen).absolute() if chosen else default_home
    is_system = home == SYSTEM_HOME
    override = env.get("CLAWD_SOCKET")
    if override:
        socket = Path(override).absolute()
    elif is_system:
        socket = SYSTEM_SOCKET
    else:
        socket = socket_of_home(home, env, is_default=home == default_home)
    return Layout(
        home=home,
        config=SYSTEM_CONFIG if is_system else home / "config.toml",
        socket=socket,
        workspace=_default_workspace(
            home, env, is_system=is_system, is_default=home == default_home
        ),
        is_system=is_system,
    )


def socket_of_home(home: Path, environ: Mapping[str, str], *, is_default: bool) -> Path:
    """Return the socket of a user's home; never longer than the kernel takes."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if not runtime.startswith("/"):  # a relative one is to be ignored (XDG base directories)
        runtime = ""
    for place in _socket_places(home, runtime, is_default=is_default):
        if len(os.fsencode(place)) <= MAX_SOCKET_PATH_BYTES:
            return place
    return Path(f"/tmp/clawd-{os.getuid()}") / f"{_digest(home)}.sock"  # noqa: S108


def candidate_sockets(explicit: str | None, environ: Mapping[str, str]) -> list[Path]:
    """Return the sockets a client tries, in order; more than one only when nothing was named."""
    if explicit:
        return [expanded(explicit).absolute()]
    own = layout(environ).socket
    if environ.get("CLAWD_SOCKET") or environ.get("CLAWD_HOME"):
        return [own]
    return [own, SYSTEM_SOCKET]


def _socket_places(home: Path, runtime: str, *, is_default: bool) -> Iterator[Path]:
    if is_default and runtime:
        yield Path(runtime) / "clawd" / "clawd.sock"
    yield home / "run" / "clawd.sock"
    if runtime:
        yield Path(runtime) / "clawd" / f"{_digest(home)}.sock"


def _digest(home: Path) -> str:
    # Imported here: loading OpenSSL would cost every one-shot command 10 ms.
    import hashlib

    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def user_home(environ: Mapping[str, str]) -> Path:
    """Return the home of the account; NO_HOME where nothing names one."""
    home = Path(environ.get("HOME") or expanded("~"))
    # Relative: a uid without an account. CLAWD_HOME may still name a place.
    return home if home.is_absolute() else NO_HOME


def _default_workspace(
    home: Path, environ: Mapping[str, str], *, is_system: bool, is_default: bool
) -> Path:
    if is_system:
        return SYSTEM_HOME / "workspace"
    return user_home(environ) / "clawd-workspace" if is_default else home / "workspace"


def has_module(name: str) -> bool:
    """Return whether a module can be imported in this environment, without importing it."""
    # Not at the top: every command of clawctl would pay for what few ask.
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def install_line(extra: str) -> str:
    """Return the command that adds an extra of clawd to the Python environment it runs in."""
    import shlex

    if (Path(sys.prefix) / "pipx_metadata.json").is_file():
        return f"pipx runpip {shlex.quote(Path(sys.prefix).name)} install 'clawd[{extra}]'"
    python = shlex.quote(sys.executable)
    if not has_module("pip"):
        return f"uv pip install --python {python} 'clawd[{extra}]'"
    return f"{python} -m pip install 'clawd[{extra}]'"
