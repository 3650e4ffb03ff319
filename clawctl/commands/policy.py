"""`clawctl policy`: what the gate answers, to a call, a table or calls of the past; its rules."""

import contextlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import click

from clawctl.app import (
    MOMENT_HELP,
    App,
    Exit,
    Moment,
    Name,
    conversation_option,
    json_command,
    json_option,
    pass_app,
)
from clawctl.render import emit, emit_json, say, show_table
from clawctl.systemctl import answer_of
from clawctl.views import check_arguments, show_boundary, show_explanation
from clawctl.workspace_trust import workspace_here
from clawd.errors import InvalidRequestError
from clawd.wire import policy as wire
from clawd.wire.method import Done, Method

# Hosts that a package tool's own settings on this machine name; no list of hosts is kept here.
#
# Each tool is asked, or its settings are read as it reads them. What it contacts beyond, as the
# files that an index leads to, is asked about by name when it is refused.

_ASK_LIMIT_S = 20.0
_URL = re.compile(r"https?://[^\s'\",|)\\]+")

Run = Callable[[list[str]], str]
"""Runs a program and returns what it printed; empty where it is not there or fails."""


def hosts_of(
    preset: str, environ: Mapping[str, str] = os.environ, run: Run | None = None
) -> list[str]:
    """Return the hosts of a preset, `get.example.org:443`, in the order the tool names them.

    Raises:
        InvalidRequestError: this machine names none.
    """
    ask = {"pip": _pip, "npm": _npm, "cargo": _cargo, "go": _go, "apt": _apt}[preset]
    found: dict[str, None] = {}
    for url in _URL.findall(ask(environ, run or _run)):
        with contextlib.suppress(InvalidRequestError):
            found[wire.host_grant(re.sub(r"//[^/]*@", "//", url))] = None
    if not found:
        raise InvalidRequestError(
            f"{preset} names no host in its settings here, or is not installed",
            hint="Run it once: each host that is refused can be allowed by name.",
        )
    return list(found)


def _pip(environ: Mapping[str, str], run: Run) -> str:
    """Its index and extra indexes; its own default, which its help tells, where none is set."""
    given = [environ.get(f"PIP_{name}", "") for name in ("INDEX_URL", "EXTRA_INDEX_URL")]
    pip = next((name for name in ("pip", "pip3") if shutil.which(name)), "pip")
    kept = [
        line
        for line in run([pip, "config", "list"]).splitlines()
        if re.match(r"[\w.:-]+\.(extra-)?index-url=", line)
    ]
    default = ""
    if given[0]:  # which goes before what is kept
        kept = [line for line in kept if "extra-index-url=" in line]
    elif not any("extra-index-url=" not in line for line in kept):
        said = re.sub(r"\s+", " ", run([pip, "install", "--help"]))
        default = " ".join(re.findall(r"--index-url.{0,200}?\(default (\S+?)\)", said))
    return " ".join([*given, *kept, default])


def _npm(_environ: Mapping[str, str], run: Run) -> str:
    """Return its registry, and those of scopes (`@corp:registry`)."""
    kept: Any = None
    with contextlib.suppress(ValueError):
        kept = json.loads(run(["npm", "config", "list", "--json"]))
    settings = kept if isinstance(kept, dict) else {}
    return " ".join(
        str(value) for key, value in settings.items() if re.fullmatch(r"(@.+:)?registry", key)
    )


def _cargo(environ: Mapping[str, str], _run: Run) -> str:
    """Return the indexes of its settings; where crates.io is replaced, the replacement."""
    home = Path(environ.get("CARGO_HOME") or Path(environ.get("HOME") or Path.home()) / ".cargo")
    found = [
        value for name, value in environ.items() if re.fullmatch(r"CARGO_REGISTRIES_.+_INDEX", name)
    ]
    for name in ("config.toml", "config"):
        with contextlib.suppress(OSError, ValueError):
            read: dict[str, Any] = tomllib.loads((home / name).read_text())
            for table in (*read.get("source", {}).values(), *read.get("registries", {}).values()):
                found += [str(table.get("registry", "")), str(table.get("index", ""))]
    return " ".join(found)


def _go(_environ: Mapping[str, str], run: Run) -> str:
    proxy, sums = (run(["go", "env", name]).strip() for name in ("GOPROXY", "GOSUMDB"))
    # The name of a database of sums is its host, unless an address follows it.
    named = sums if " " in sums or sums in {"", "off"} else f"https://{sums.partition('+')[0]}"
    return f"{proxy} {named}"


def _apt(_environ: Mapping[str, str], run: Run) -> str:
    # Of its targets it would tell those alone that were fetched before.
    return run(["apt-get", "update", "--print-uris"])


def _run(argv: list[str]) -> str:
    # A project's settings are not the machine's: somebody else wrote them.
    return answer_of(argv[0], *argv[1:], limit_s=_ASK_LIMIT_S, cwd="/", may_fail=True) or ""


PRESETS = ("pip", "npm", "cargo", "go", "apt")
WORDS = {"allow": "allowed", "ask": "asked", "deny": "denied"}


autonomy_option = click.option(
    "--autonomy", type=click.Choice(get_args(wire.Autonomy)), help="Judge in this autonomy."
)


@click.group()
def command() -> None:
    """Ask the policy, and add rules to it; nothing is run."""


def _scope_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add what says where a rule holds and how long."""
    for option in (
        click.option("--project", is_flag=True, help="Only in this folder's project."),
        click.option("-C", "--directory", default="", metavar="DIR", help="Only in DIR's project."),
        conversation_option(help="Only in this conversation."),
        click.option("--days", type=click.IntRange(1), help="How long it holds."),
        json_option(Done),
    ):
        function = option(function)
    return function


@command.command()
@click.argument("pattern", default="")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST:PORT",
    help="get.example.org:443, *.example.org:443.",
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice(PRESETS),
    help="The hosts that this tool's own settings on this machine name.",
)
@_scope_options
@pass_app
def allow(
    app: App, /, pattern: str, hosts: tuple[str, ...], presets: tuple[str, ...], **scope: Any
) -> None:
    """Let shell commands of PATTERN run unasked ('git commit *'), or commands reach hosts.

    'file_write docs/**' lets file tools change files of a project: a path below it, * within a
    name, ** for folders.

    It becomes a rule with a receipt, which `approval revoke` takes back. A pattern covers that
    command alone. In a conversation that holds untrusted text it covers nothing, and a host that
    is new to it asks all the same.
    """
    if bool(pattern) == bool(hosts or presets):
        raise click.UsageError("name a PATTERN, or a --host or --preset")
    if pattern:
        _add_rule(app, pattern, "allow", **scope)
    else:
        _allow_hosts(app, hosts, presets, **scope)


@command.command()
@click.argument("pattern")
@_scope_options
@pass_app
def deny(app: App, /, pattern: str, **scope: Any) -> None:
    """Refuse shell commands of PATTERN from now on, whatever else allows them.

    'file_write docs/**' refuses changes of file tools there.
    """
    _add_rule(app, pattern, "deny", **scope)


def _add_rule(
    app: App, pattern: str, verdict: Literal["allow", "deny"], *, as_json: bool, **scope: Any
) -> None:
    request = wire.AddRule(
        pattern=pattern,
        verdict=verdict,
        workspace=_scoped_folder(scope),
        conversation_id=scope["conversation"],
        days=scope["days"] or 0,
    )
    _granted(app, request, as_json=as_json)


def _allow_hosts(
    app: App, hosts: tuple[str, ...], presets: tuple[str, ...], *, as_json: bool, **scope: Any
) -> None:
    named = list(hosts)
    for preset in presets:
        found = hosts_of(preset)
        named += found
        say(f"{preset}: {', '.join(found)}")
    folder = _scoped_folder(scope)
    request = wire.AllowHost(
        hosts=tuple(named),
        workspace=folder,
        conversation_id=scope["conversation"],
        everywhere=not (folder or scope["conversation"]),
        days=scope["days"] or 0,
    )
    _granted(app, request, as_json=as_json)


def _scoped_folder(scope: dict[str, Any]) -> str:
    """Return the project that a rule is for, "" for every one."""
    is_project = scope["project"] or scope["directory"]
    if scope["conversation"] and is_project:
        raise click.UsageError("--conversation has its project already; leave --project and -C out")
    return str(Path(scope["directory"] or ".").absolute()) if is_project else ""


def _granted(app: App, request: Method[Done], *, as_json: bool) -> None:
    done = app.call(request)
    emit(done, done.message, as_json=as_json)


@command.command()
@click.argument("tool", type=Name("tools"), default="")
@click.argument("arguments", default="{}", metavar="[JSON]")
@click.option("--host", default="", metavar="HOST:PORT", help="Ask about a host that is reached.")
@click.option("-C", "--directory", default="", metavar="DIR", help="Its workspace, else here.")
@autonomy_option
@json_command(wire.PolicyExplanation)
def explain(
    app: App, /, tool: str, arguments: str, host: str, *, as_json: bool, **how: Any
) -> None:
    """Say what the policy answers to a call of TOOL with these arguments, and by which rule."""
    if bool(tool) == bool(host):
        raise click.UsageError("name a TOOL, or a --host")
    if host:
        tool, arguments = wire.HOST_TOOL, json.dumps({"host": wire.host_grant(host)})
    check_arguments(arguments, example=f'clawctl policy explain {tool} \'{{"command": "ls"}}\'')
    request = wire.ExplainPolicy(
        tool=tool,
        arguments=arguments,
        workspace=workspace_here(app, how["directory"]),
        autonomy=how["autonomy"],
    )
    found = app.call(request)
    emit(found, show_explanation, as_json=as_json)


@command.command()
@click.option("-C", "--directory", default="", metavar="DIR", help="Of this one, else here.")
@json_command(wire.PolicyBoundary)
def show(app: App, directory: str, *, as_json: bool) -> None:
    """Show the boundary: the workspace, forbidden paths and commands, allowed hosts."""
    found = app.call(wire.ShowPolicy(workspace=workspace_here(app, directory)))
    emit(found, show_boundary, as_json=as_json)


@command.command()
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("-C", "--directory", default="", metavar="DIR", help="The workspace of the calls.")
@json_command(list[wire.PolicyCaseLine])
def test(app: App, file: Path | None, directory: str, *, as_json: bool) -> Exit:
    """Judge the table of cases in FILE (TOML) under the policy in force; exit 1 if one is wrong.

    Without FILE it is the table that policy_cases in [security] of the config names.
    """
    table = "" if file is None else _text_of(file)
    workspace = workspace_here(app, directory)
    request = wire.CheckPolicy(table=table, configured=file is None, workspace=workspace)
    cases = app.call(request).items
    wrong = [case for case in cases if case.problem]
    if as_json:
        emit_json(cases)
    else:
        if wrong:
            show_table(
                ("CASE", "TOOL", "RISK", "PROBLEM"),
                [(case.name, case.tool, case.risk, case.problem) for case in wrong],
            )
        print(f"{len(cases) - len(wrong)} of {len(cases)} cases are as they should be.")
    return Exit.FAILED if wrong else Exit.DONE


@command.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Judge under this configuration.",
)
@autonomy_option
@click.option("--since", type=Moment(), default="", metavar="WHEN", help=MOMENT_HELP)
@click.option(
    "--limit",
    type=click.IntRange(1, wire.REPLAY_LIMIT),
    default=1_000,
    help="Of the newest receipts.",
)
@json_command(wire.PolicyReplay)
def replay(
    app: App,
    config: Path | None,
    since: str,
    limit: int,
    *,
    autonomy: wire.Autonomy | None,
    as_json: bool,
) -> Exit:
    """Judge past calls again, from their receipts, and show what would be decided otherwise.

    Nothing is run. Without --config and --autonomy the policy in force judges. Exit codes: 0 every
    call would be decided as it was, 1 some would not.
    """
    request = wire.ReplayPolicy(
        config=None if config is None else _text_of(config),
        autonomy=autonomy,
        since=since,
        limit=limit,
    )
    found = app.call(request)
    emit(found, _show_replay, as_json=as_json)
    return Exit.FAILED if found.items else Exit.DONE


def _show_replay(found: wire.PolicyReplay) -> None:
    if found.items:
        show_table(
            ("NO", "WHEN", "TOOL", "WAS", "WOULD BE", "RISK", "WHY", "ARGUMENTS"),
            [
                (
                    line.seq,
                    line.timestamp,
                    line.tool,
                    WORDS.get(line.before, line.before),
                    WORDS.get(line.after, line.after),
                    line.risk,
                    line.reason,
                    line.arguments,
                )
                for line in found.items
            ],
        )
        print()
    changed = [each for each in found.counts if each.before != each.after]
    for each in changed:
        words = f"{WORDS.get(each.before, each.before)} → {WORDS.get(each.after, each.after)}"
        say(f"{each.count:6}  {words}")
    total = sum(each.count for each in found.counts)
    same = total - sum(each.count for each in changed)
    print(f"{same} of {total} calls would be decided as they were.")
    for skipped in found.skipped:
        say(f"{skipped.count} cannot be replayed: {skipped.reason}")


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{file} cannot be read: {error}") from error
