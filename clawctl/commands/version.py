"""`clawctl version`: of this client, of the daemon when one runs, and of what both rest on."""

import platform
from importlib.metadata import PackageNotFoundError, version

import click
import msgspec

from clawctl.app import App, json_command
from clawctl.render import emit, fields
from clawd import __version__
from clawd.errors import ClawError
from clawd.wire.codec import PROTOCOL_MAX, PROTOCOL_MIN


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol versions that this client speaks, and the one that it speaks with the daemon."""

    min: int
    max: int
    spoken: int | None


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Versions; null for what is not there."""

    clawctl: str
    clawd: str | None
    protocol: Spoken
    llama_cpp: str | None
    python: str


@click.command()
@json_command(Versions)
def command(app: App, *, as_json: bool) -> None:
    """Print the versions of clawctl, the daemon when one runs, the protocol and llama.cpp."""
    daemon, spoken = "", 0
    try:
        with app.running_client() as client:
            daemon, spoken = client.welcome.version, client.welcome.protocol
    except ClawError:
        # Which daemon answers is a bonus here; every other command says why none does.
        daemon = ""
    protocol = str(PROTOCOL_MIN)
    if PROTOCOL_MAX != PROTOCOL_MIN:
        protocol = f"{PROTOCOL_MIN} to {PROTOCOL_MAX}"
    binding = _version_of("llama-cpp-python")
    emit(
        Versions(
            clawctl=__version__,
            clawd=daemon or None,
            protocol=Spoken(min=PROTOCOL_MIN, max=PROTOCOL_MAX, spoken=spoken or None),
            llama_cpp=binding,
            python=platform.python_version(),
        ),
        fields(
            [
                ("clawctl", __version__),
                ("clawd", daemon or "(not running)"),
                ("protocol", protocol + (f", {spoken} spoken with the daemon" if spoken else "")),
                ("llama.cpp", f"llama-cpp-python {binding}" if binding else "not installed"),
                ("python", platform.python_version()),
            ]
        ),
        as_json=as_json,
    )


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
