"""Which receipts a command is about: options for a conversation and a span of time."""

import functools
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from clawd.wire.receipt_methods import ListReceipts

C = TypeVar("C", bound=Callable[..., Any])

_AGO = re.compile(r"([0-9]{1,6})([mhd])")
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
_FORMS = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d")

HELP = "A UTC time (2026-11-21, 2026-11-21T08:00Z) or how long ago (30m, 2h, 7d)."


def utc_time(text: str, *, now: float | None = None) -> str:
    """Return the time in the form of receipts, `2026-11-21T08:00:00Z`; empty for empty.

    Raises:
        click.BadParameter: it is no time.
    """
    if not text:
        return ""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        seconds = int(ago[1]) * _SECONDS[ago[2]]
        past = max((time.time() if now is None else now) - seconds, 0)
        return time.strftime(_FORMS[0], time.gmtime(past))
    for form in _FORMS:
        try:
            return time.strftime(_FORMS[0], time.strptime(text, form))
        except ValueError:
            continue
    raise click.BadParameter(f"{text!r} is no time. {HELP}")


def which_receipts(command: C) -> Callable[..., Any]:
    """Add --conversation, --since and --until to a command; they arrive as `wanted`."""

    @functools.wraps(command)
    def with_wanted(
        *arguments: Any, conversation: str, since: str, until: str, **options: Any
    ) -> Any:
        wanted = ListReceipts(conversation_id=conversation, since=since, until=until)
        return command(*arguments, wanted=wanted, **options)

    for name, help_text in (("--until", f"Before this. {HELP}"), ("--since", HELP)):
        option = click.option(name, default="", callback=_take, metavar="TIME", help=help_text)
        with_wanted = option(with_wanted)
    text = "Of this conversation only."
    return click.option("--conversation", default="", metavar="ID", help=text)(with_wanted)


def _take(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    return utc_time(value)
