"""Commands that keep something, the clipboard, and this terminal: colours, editor, leaving."""

import os
import select
import shutil
import subprocess
import time
from pathlib import Path

from clawctl.client import pages
from clawctl.render import duration, note, say, show_table
from clawctl.repl.acts.talk import has_conversation
from clawctl.repl.host import Host
from clawctl.repl.theme import THEME_VARIABLE, THEMES, theme_name
from clawctl.turn import usage_line
from clawd.errors import InvalidRequestError
from clawd.paths import layout
from clawd.wire.conversations import ExportConversation
from clawd.wire.pictures import MAX_PICTURE_BYTES, looks_like_picture

COPY_FILE = "last-answer.md"


def copy(host: Host, _rest: str) -> None:
    """Copy the last answer to the clipboard, or to a file where there is none."""
    if host.last is None or not host.last.text:
        note("There is no answer yet.")
        return
    program = copy_text(host.last.text)
    if program:
        say(f"Copied with {program}.")
        return
    path = layout().home / COPY_FILE
    _write(path, host.last.text, replaces=True)
    say(f"No clipboard was found (wl-copy, xclip, xsel, pbcopy): the answer is in {path}")


def paste(host: Host, _rest: str) -> None:
    """Have the picture in the clipboard go with the next message."""
    data = copied_picture()
    if len(data) > MAX_PICTURE_BYTES:
        note(f"The picture in the clipboard has over {MAX_PICTURE_BYTES >> 20} MiB.")
    elif not looks_like_picture(data):
        note("No PNG or JPEG is in the clipboard, or nothing here reads it (wl-paste, xclip).")
    else:
        host.choose(pictures=(*host.choice.pictures, data))
        say(f"A picture of {len(data)} bytes goes with your next message.")


def save(host: Host, rest: str) -> None:
    """Write the conversation to a new file."""
    if not rest:
        note("/save takes the name of a file, as in: /save talk.md")
        return
    if not has_conversation(host):
        return
    path = host.directory / Path(rest).expanduser()
    request = ExportConversation(conversation_id=host.conversation_id, format="markdown")
    text = "".join(piece.text for piece in pages(host.call, request))
    _write(path, text, replaces=False)
    say(f"Written to {path.absolute()}")


def cost(host: Host, _rest: str) -> None:
    """Show what fills the context, by part, and what the session has cost."""
    spent = host.spent
    turns = "1 turn" if spent.turns == 1 else f"{spent.turns} turns"
    say(
        f"{turns} in {duration(spent.seconds)}: {spent.prompt_tokens} prompt tokens, "
        f"{spent.completion_tokens} generated"
    )
    if host.last is None:
        say("What fills the context is known after the next answer.")
        return
    ledger = host.last.ledger
    rows: list[tuple[str, object, str]] = [
        (part.name, part.tokens, _share(part.tokens, ledger.context_size)) for part in ledger.parts
    ]
    if ledger.context_size:
        rows.append(("free", ledger.free, _share(ledger.free, ledger.context_size)))
    show_table(("PART", "TOKENS", "OF THE CONTEXT"), rows, nothing="The model counted nothing.")
    left_out = sum(part.tokens for part in ledger.parts) + ledger.free - ledger.context_size
    if ledger.context_size and left_out > 0:
        say(f"{left_out} of these tokens are left out by the model's chat template.")
    if ledger.is_estimate:
        say("These are estimates: the model's own tokenizer could not be asked.")
    summary = usage_line(host.last.usage)
    if summary:
        say(summary)


def _share(tokens: int, whole: int) -> str:
    return f"{100 * tokens / whole:.0f}%" if whole else ""


def _write(path: Path, text: str, *, replaces: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | (os.O_TRUNC if replaces else os.O_EXCL), 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError as error:
        raise InvalidRequestError(f"{path} is there already", hint="Name another file.") from error
    except OSError as error:
        raise InvalidRequestError(
            f"{path} cannot be written: {error.strerror}", hint="Name another file."
        ) from error


LIMIT_S = 5.0

# Program, its arguments, and the variable without which it reaches nothing.
_PROGRAMS = (
    ("wl-copy", (), "WAYLAND_DISPLAY"),
    ("xclip", ("-selection", "clipboard"), "DISPLAY"),
    ("xsel", ("--clipboard", "--input"), "DISPLAY"),
    ("pbcopy", (), ""),
    ("clip.exe", (), "WSL_DISTRO_NAME"),
)


def copy_text(text: str) -> str:
    """Copy a text and return the program that did it, "" when none could."""
    for name, arguments, needed in _PROGRAMS:
        program = shutil.which(name, path=os.environ.get("PATH", ""))
        if program is None or (needed and not os.environ.get(needed)):
            continue
        try:
            done = subprocess.run(  # noqa: S603 a fixed command of the desktop, no shell
                [program, *arguments],
                input=text.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return name
    return ""


# Program, its arguments before the type of a picture and behind it, and the variable as above.
_PASTERS = (
    ("wl-paste", ("--no-newline", "--type"), (), "WAYLAND_DISPLAY"),
    ("xclip", ("-selection", "clipboard", "-target"), ("-out",), "DISPLAY"),
)


def copied_picture() -> bytes:
    """Return the PNG or JPEG in the clipboard, cut where it is too large; empty without one."""
    for name, before, behind, needed in _PASTERS:
        program = shutil.which(name, path=os.environ.get("PATH", ""))
        if program is None or not os.environ.get(needed):
            continue
        for kind in ("image/png", "image/jpeg"):
            data = _output_of([program, *before, kind, *behind], MAX_PICTURE_BYTES + 1)
            if looks_like_picture(data):
                return data
    return b""


def _output_of(command: list[str], most: int) -> bytes:
    """Return what a program writes within the time limit, so many bytes of it at most."""
    data, ends_at = bytearray(), time.monotonic() + LIMIT_S
    null = subprocess.DEVNULL
    try:
        with subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null) as running:  # noqa: S603 a fixed command of the desktop, no shell
            assert running.stdout is not None
            pipe = running.stdout.fileno()
            while len(data) < most and (left := ends_at - time.monotonic()) > 0:
                if select.select([pipe], [], [], left)[0]:
                    read = os.read(pipe, min(1 << 20, most - len(data)))
                    if not read:
                        break
                    data += read
            running.kill()
    except OSError:
        return b""
    return bytes(data)


def leave(host: Host, _rest: str) -> None:
    """Leave."""
    host.leave()


def theme(_host: Host, rest: str) -> None:
    """Choose the colours for what comes."""
    names = ", ".join(THEMES)
    if not rest:
        say(f"The theme is {theme_name()}; there are {names}.")
    elif rest not in THEMES:
        note(f"{rest} is not a theme; there are {names}")
    else:
        os.environ[THEME_VARIABLE] = rest
        if theme_name() != rest:
            note("NO_COLOR is set or the terminal shows no colours: it stays without them.")
            return
        say(f'The theme is {rest} from now on. To keep it: theme = "{rest}" in client.toml.')


def reasoning(host: Host, rest: str) -> None:
    """Show reasoning whole or folded."""
    if rest not in {"", "whole", "folded"}:
        note("/reasoning takes whole or folded")
        return
    host.shows_reasoning = not host.shows_reasoning if not rest else rest == "whole"
    say(f"Reasoning is shown {'whole' if host.shows_reasoning else 'folded'} from now on.")


def editor(host: Host, rest: str) -> None:
    """Write a message in the external editor; it comes back into the prompt."""
    import click

    try:
        text = click.edit(rest, extension=".md", require_save=False)
    except click.ClickException as error:
        note(f"{error.format_message()} Set $EDITOR to yours.")
        return
    if text and text.strip():
        host.offer(text.rstrip("\n"), is_typed=True)
