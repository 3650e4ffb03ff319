"""Writes the manual: `python -m bootstrap.manpages DIR` puts its pages there.

Everything comes from the code: the command tree, the daemon's options, the config's schema. Pages
are in the man(7) language and are the same for the same code, byte by byte. Unlike the rest of
bootstrap this needs clawd's libraries. `--table` prints the table of docs/commands.md instead.
"""

import argparse
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from bootstrap.manual_text import ENVIRONMENT, EXAMPLES, EXIT_CODES, FILES, RELEASED, SIGNALS
from clawctl.main import COMMANDS, GROUPS, cli
from clawd import __version__
from clawd.config.schema import json_schema
from clawd.service.main import command_line

SOURCE_COLUMNS = 78

Pairs = Iterable[tuple[str, str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or print the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="bootstrap.manpages", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the pages go")
    parser.add_argument("--table", action="store_true", help="print the table of commands")
    options = parser.parse_args(arguments)
    if options.table:
        print(table(), end="")
        return 0
    if options.folder is None:
        parser.error("name a folder")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (options.folder / name).write_text(text, encoding="utf-8")
    return 0


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    found = {"clawctl.1": _overview(), "clawd.8": _daemon(), "clawd.toml.5": _config()}
    return found | {f"clawctl-{name}.1": _command_page(name) for name in COMMANDS}


def table() -> str:
    """Return the table of all commands, in Markdown."""
    lines = ["| Command | What it does |", "| --- | --- |"]
    for heading, names in GROUPS.items():
        lines.append(f"| **{heading}** | |")
        for name in names:
            for path, command in _leaves(name, _loaded(name)):
                lines.append(f"| `clawctl {path}` | {_first_line(command)} |")
    return "\n".join(lines) + "\n"


# --- pages


def _overview() -> str:
    about = _paragraphs(cli.help or "")
    return "".join(
        [
            _title("CLAWCTL", 1),
            _section("NAME", "clawctl \\- the client of clawd, the local\\-first agent daemon\n"),
            _section("SYNOPSIS", ".B clawctl\n[\\fIoptions\\fR] \\fIcommand\\fR [\\fIargs\\fR]\n"),
            _section("DESCRIPTION", about),
            _section("OPTIONS", _options(cli)),
            _section("COMMANDS", "".join(_group(*each) for each in GROUPS.items())),
            _section("EXIT STATUS", _terms(EXIT_CODES)),
            _section("ENVIRONMENT", _terms(ENVIRONMENT)),
            _section("FILES", _terms(FILES)),
            _section("EXAMPLES", _examples(["onboard", "agent", "receipt", "estop"])),
            _see(["clawd(8)", "clawd.toml(5)", *(f"clawctl-{name}(1)" for name in COMMANDS)]),
        ]
    )


def _group(heading: str, commands: dict[str, str]) -> str:
    terms = _terms((f"\\fBclawctl\\-{name}\\fR(1)", text) for name, text in commands.items())
    return f'.SS "{heading}"\n{terms}'


def _command_page(name: str) -> str:
    command = _loaded(name)
    what = COMMANDS[name].rstrip(".")
    parts = [
        _title(f"CLAWCTL-{name.upper()}", 1),
        _section("NAME", _lines(f"clawctl-{name} - {what[0].lower()}{what[1:]}")),
        _section("SYNOPSIS", ".br\n".join(_synopses(name, command))),
        _section("DESCRIPTION", _paragraphs(command.help or what)),
    ]
    options = _options(command)
    if options:
        parts.append(_section("OPTIONS", options))
    if isinstance(command, click.Group):
        shown = [(path, below) for path, below in _leaves(name, command) if path != name]
        parts.append(_section("COMMANDS", "".join(_sub(path, below) for path, below in shown)))
    parts += [
        _section("EXIT STATUS", _terms(EXIT_CODES)),
        _section("EXAMPLES", _examples([name])),
        _see(["clawctl(1)", "clawd(8)", "clawd.toml(5)"]),
    ]
    return "".join(parts)


def _sub(path: str, command: click.Command) -> str:
    usage = _usage(path, command)
    return f'.SS "clawctl {_plain(path)}"\n{usage}.PP\n{_paragraphs(command.help or "")}' + (
        _options(command)
    )


def _daemon() -> str:
    options = [
        (", ".join(f"\\fB{_plain(each)}\\fR" for each in action.option_strings), action.help or "")
        for action in command_line()._actions  # noqa: SLF001 - argparse lists them nowhere else
    ]
    about = (
        "clawd owns the model, the tools, the memory and the receipts of one user, or of a machine "
        "as a service. It runs in the foreground and serves a Unix socket; clawctl(1) is its "
        "client and starts one when none runs. Every tool call is judged, confined and recorded."
    )
    return "".join(
        [
            _title("CLAWD", 8),
            _section("NAME", "clawd \\- the local\\-first agent daemon\n"),
            _section("SYNOPSIS", ".B clawd\n[\\fIoptions\\fR]\n"),
            _section("DESCRIPTION", _paragraphs(about)),
            _section("OPTIONS", _terms(options)),
            _section("SIGNALS", _terms(SIGNALS)),
            _section(
                "EXIT STATUS", _terms([("0", "Ended in order."), ("1", "Failed."), ("2", "Usage.")])
            ),
            _section("ENVIRONMENT", _terms(ENVIRONMENT)),
            _section("FILES", _terms(FILES)),
            _section(
                "EXAMPLES",
                _typed([("clawd --check-config", "Name every problem of the config.")]),
            ),
            _see(["clawctl(1)", "clawd.toml(5)", "systemd(1)"]),
        ]
    )


def _config() -> str:
    schema = json_schema()
    about = (
        "The configuration of clawd is a TOML file. Every key has a default; unknown keys are "
        "refused with the nearest known one. Any key can also be set in the environment, as "
        "CLAWD_SECURITY__AUTONOMY=readonly. Check it with: clawctl config validate. Names in "
        "angle brackets are yours to choose."
    )
    parts = [
        _title("CLAWD.TOML", 5),
        _section("NAME", "clawd.toml \\- the configuration of clawd, config.toml in its home\n"),
        _section("DESCRIPTION", _paragraphs(about)),
        _section("KEYS", "".join(_keys(schema, schema))),
        _section("FILES", _terms(FILES[:1])),
        _section(
            "EXAMPLES",
            _typed([("clawctl config edit", "Edit it; it is replaced only when it is valid.")]),
        ),
        _see(["clawctl-config(1)", "clawd(8)"]),
    ]
    return "".join(parts)


def _keys(section: dict[str, Any], root: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the keys of a section, then those of the sections below it."""
    below: list[tuple[str, dict[str, Any]]] = []
    plain: list[tuple[str, str]] = []
    for name, each in section.get("properties", {}).items():
        rule = _resolved(each, root)
        inner = rule.get("additionalProperties")
        if "properties" in rule:
            below.append((f"{prefix}{name}", rule))
        elif isinstance(inner, dict) and "properties" in _resolved(inner, root):
            below.append((f"{prefix}{name}.<name>", _resolved(inner, root)))
        else:
            plain.append((name, _about_key({**rule, **each})))
    if plain:
        heading = f"[{prefix.rstrip('.')}]" if prefix else "At the top"
        yield f'.SS "{_plain(heading)}"\n'
        yield _paragraphs(section.get("description", "")) if prefix else ""
        yield _terms((f"\\fB{_plain(name)}\\fR", text) for name, text in plain)
    for name, rule in below:
        yield from _keys(rule, root, f"{name}.")


def _about_key(rule: dict[str, Any]) -> str:
    about = str(rule.get("description", ""))
    if "enum" in rule:
        values = ", ".join(str(each) if each != "" else "empty" for each in rule["enum"])
        about += f" One of: {values}."
    if rule.get("default") not in (None, "", [], {}):
        about += f" Default: {rule['default']}."
    return about or "See the commented file that clawctl init writes."


def _resolved(rule: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    for option in rule.get("anyOf", ()):
        if "$ref" in option:
            rule = {**option, **{key: value for key, value in rule.items() if key != "anyOf"}}
            break
    while "$ref" in rule:
        found = root
        for word in rule["$ref"].split("/")[1:]:
            found = found[word]
        rule = {**found, **{key: value for key, value in rule.items() if key != "$ref"}}
    return rule


# --- the command tree


def _loaded(name: str) -> click.Command:
    command = importlib.import_module(f"clawctl.commands.{name}").command
    assert isinstance(command, click.Command)
    return command


def _leaves(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands that do something; a second name for one is not shown."""
    if command.hidden:
        return
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _leaves(f"{path} {name}", below)


def _synopses(name: str, command: click.Command) -> Iterator[str]:
    for path, each in _leaves(name, command):
        yield _usage(path, each)


def _usage(path: str, command: click.Command) -> str:
    words = []
    if any(isinstance(param, click.Option) for param in command.params):
        words.append("[\\fIoptions\\fR]")
    context = click.Context(command, info_name=path)
    for param in command.params:
        if isinstance(param, click.Argument):
            words += [
                f"\\fI{_plain(piece)}\\fR" for piece in param.get_usage_pieces(context) if piece
            ]
    return (
        f".B clawctl {_plain(path)}\n{' '.join(words)}\n"
        if words
        else (f".B clawctl {_plain(path)}\n")
    )


def _options(command: click.Command) -> str:
    context = click.Context(command)
    records = (
        param.get_help_record(context)
        for param in command.params
        if isinstance(param, click.Option)
    )
    return _terms((f"\\fB{_plain(left)}\\fR", right) for left, right in filter(None, records))


def _first_line(command: click.Command) -> str:
    first = (command.help or "").split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


# --- the language of the pages


def _title(name: str, section: int) -> str:
    return f'.TH "{name}" "{section}" "{RELEASED}" "clawd {__version__}" "clawd"\n'


def _section(name: str, text: str) -> str:
    return f".SH {name}\n{text}"


def _see(names: Sequence[str]) -> str:
    lines = []
    for number, each in enumerate(names):
        name, _, section = each.rstrip(")").partition("(")
        comma = "," if number < len(names) - 1 else ""
        lines.append(f".BR {_plain(name)} ({section}){comma}\n")
    return _section("SEE ALSO", "".join(lines))


def _terms(pairs: Pairs) -> str:
    return "".join(
        f".TP\n{term if term.startswith(chr(92)) else _plain(term)}\n{_lines(text)}"
        for term, text in pairs
    )


def _examples(names: Sequence[str]) -> str:
    return _typed(pair for name in names for pair in _typed_of(name))


def _typed_of(name: str) -> list[tuple[str, str]]:
    return [
        (typed if "clawctl" in typed else f"clawctl {typed}", about)
        for typed, about in EXAMPLES[name]
    ]


def _typed(pairs: Pairs) -> str:
    return ".PP\n".join(
        f"{_lines(about)}.PP\n.RS 4\n.nf\n{_guarded(_plain(typed))}\n.fi\n.RE\n"
        for typed, about in pairs
    )


def _paragraphs(text: str) -> str:
    """Return a docstring as paragraphs; a form feed ends what is shown."""
    parts = [part for part in re.split(r"\n\s*\n", text.split("\f")[0].strip()) if part.strip()]
    return ".PP\n".join(_lines(part) for part in parts)


def _lines(text: str) -> str:
    """Return text with each sentence on a line of its own, as the language wants it."""
    joined = " ".join(text.replace("`", "").split())
    if not joined:
        return ""
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z\[])", joined)
    lines = (line for each in sentences for line in _wrapped(each))
    return "".join(f"{_guarded(line)}\n" for line in lines)


def _wrapped(sentence: str) -> Iterator[str]:
    """Yield a sentence in lines of the source that are no longer than linters like."""
    line = ""
    for word in map(_plain, sentence.split()):
        if line and len(line) + len(word) + 1 > SOURCE_COLUMNS:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


def _plain(text: str) -> str:
    """Return text in which nothing is a command to the formatter."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = text.replace("~", "\\(ti").replace("^", "\\(ha").replace("`", "\\(ga")
    return text.replace("…", "\\&...").replace("→", "\\(->").replace('"', "\\(dq")


def _guarded(line: str) -> str:
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    sys.exit(main())
