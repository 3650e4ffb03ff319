"""`clawd`: the daemon's command line. In the foreground; also checks and writes configurations.

Each act imports what it needs: checking a config loads no daemon.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from clawd import __version__
from clawd.config.load import Loaded, load
from clawd.config.render import initialise, redacted, settings, toml_value
from clawd.config.schema import json_schema
from clawd.errors import ClawError, ConfigError, ReceiptError
from clawd.kernel.syscalls import set_not_dumpable
from clawd.paths import layout, user_home


def harden_process() -> None:
    """Close the process to others of the same user: no ptrace, no /proc/PID/environ, no core.

    Raises:
        OSError: the kernel refused; a daemon that can be read by its own tools must not run.
    """
    set_not_dumpable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(argv: list[str] | None = None) -> int:
    """Run clawd; return its exit status (0 done, 1 failed, 2 usage)."""
    options = command_line().parse_args(argv)
    os.environ["HOME"] = str(user_home(os.environ))
    act: Callable[[argparse.Namespace], int] = _serve
    for name in ("init", "check_config", "show_config", "config_schema", "checkup"):
        if getattr(options, name):
            act = {
                "init": _init,
                "check_config": _check_config,
                "show_config": _show_config,
                "config_schema": _config_schema,
                "checkup": _checkup,
            }[name]
    try:
        return act(options)
    except ConfigError as error:
        return _tell(error, as_json=options.json, problems=error.problems)
    except ClawError as error:
        return _tell(error, as_json=options.json)


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the daemon's command line; the manual is made from it, too."""
    parser = argparse.ArgumentParser(prog="clawd", description="The local-first agent daemon.")
    parser.add_argument("--version", action="version", version=f"clawd {__version__}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the config file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--init", action="store_true", help="write config, memory and workspace")
    what.add_argument("--check-config", action="store_true", help="check the config and end")
    what.add_argument("--show-config", action="store_true", help="print the effective config")
    what.add_argument("--config-schema", action="store_true", help="print the JSON Schema")
    what.add_argument("--checkup", action="store_true", help="print how it stands, for doctor")
    return parser


def _serve(options: argparse.Namespace) -> int:
    from clawd.service.home import make_folders, redactor_of
    from clawd.service.lifecycle import run
    from clawd.service.logs import set_up

    harden_process()
    loaded = load(options.config)
    make_folders(loaded)
    umask = os.umask(0o077)
    redactor = redactor_of(loaded, os.environ)
    set_up(os.environ, redactor, loaded.layout.log)
    asyncio.run(run(loaded, os.environ, redactor, umask=umask))
    return 0


def _init(options: argparse.Namespace) -> int:
    from clawd.security.redact import load_or_create_key

    where = layout(os.environ)
    done = initialise(where)
    loaded = load(options.config)
    existed = loaded.config.memory.path.exists()
    asyncio.run(_make_memory(loaded))
    load_or_create_key(where.secret_key)
    done.append(f"{'kept' if existed else 'created'} {loaded.config.memory.path}")
    done.append(_first_public_key(loaded))
    _print({"done": done}, as_json=options.json, text="\n".join(done))
    return 0


def _first_public_key(loaded: Loaded) -> str:
    """Return a sentence with the public key to keep; the first start of a chain makes it."""
    from clawd.receipts.keys import first_public_key
    from clawd.receipts.verify import read_head
    from clawd.wire.receipts import ReceiptHead

    path, where = loaded.config.receipts.path, loaded.layout
    try:
        head = read_head(path, first_public_key_path=where.checkpoint_public_key)
    except ReceiptError:
        head = ReceiptHead()
    key = head.first_public_key if head.signed else first_public_key(where.checkpoint_key)
    return f"first public key of the receipts, to keep elsewhere: {key}"


async def _make_memory(loaded: Loaded) -> None:
    from clawd.memory.store import Memory

    memory = await Memory.open(loaded.config.memory.path)
    await memory.close()


def _check_config(options: argparse.Namespace) -> int:
    loaded = load(options.config)
    text = f"{loaded.path}: valid"
    _print({"ok": True, "path": str(loaded.path)}, as_json=options.json, text=text)
    return 0


def _show_config(options: argparse.Namespace) -> int:
    loaded = load(options.config)
    value = {"path": str(loaded.path), "values": redacted(loaded), "sources": dict(loaded.sources)}
    lines = [f"{each.key} = {toml_value(each.value)}  # {each.source}" for each in settings(loaded)]
    _print(value, as_json=options.json, text="\n".join(lines))
    return 0


def _config_schema(_options: argparse.Namespace) -> int:
    _print(json_schema(), as_json=True, text="")
    return 0


def _checkup(options: argparse.Namespace) -> int:
    from clawd.service.lifecycle import checkup

    found = asyncio.run(checkup(options.config, os.environ))
    _print(msgspec.to_builtins(found), as_json=True, text="")
    return 1 if found.problems else 0


def _print(value: object, *, as_json: bool, text: str) -> None:
    sys.stdout.write((json.dumps(value, indent=2, default=str) if as_json else text) + "\n")


def _tell(error: ClawError, *, as_json: bool, problems: tuple[str, ...] = ()) -> int:
    if as_json:
        value = {"ok": False, "code": error.code, "message": error.message, "hint": error.hint}
        sys.stdout.write(json.dumps(value | {"problems": list(problems)}, indent=2) + "\n")
    else:
        sys.stderr.write(f"clawd: {error.message}\n" + (f"{error.hint}\n" if error.hint else ""))
    return 1
