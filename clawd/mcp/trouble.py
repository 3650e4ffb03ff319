"""What went wrong with one connection, as its parts learn it: the one place they tell it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from clawd.wire.safe_text import single_line

TRANSPORT_ERROR = -32950
"""Code of the errors that this side makes up for what the transport met."""

NEWEST = "2026-07-28"
"""The first revision without a handshake; a server is asked for it first."""

_MAX_PROBLEM = 400


def shown(text: str) -> str:
    """Return a server's words so that they can stand in a sentence of ours."""
    return single_line(text.encode("utf-8", "replace").decode(), _MAX_PROBLEM)


class Trouble:
    """What is known of a connection's end. Used from its event loop only.

    Attributes:
        problem: why it ends, the first reason that was told; empty while it does not.
        is_lost: the server is well, but does not know this session any more.
        is_unreachable: nothing listens there.
        status: the HTTP status that refuses us for good (401, 403), 0 for none.
        ignores_discover: the server did not answer when asked for the newest revision.
        speaks_newest: it answered that late, so it was only slow.
        sign_in: the address that a person must open to sign in.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.is_lost = False
        self.is_unreachable = False
        self.status = 0
        self.ignores_discover = False
        self.speaks_newest = False
        self.sign_in = ""
        self.is_over = asyncio.Event()
        self.stir = asyncio.Event()

    def end(self, problem: str) -> None:
        """The connection is of no use any more."""
        self.problem = self.problem or problem
        self.is_over.set()
        self.stir.set()

    def learn_newest(self, answer: Mapping[str, Any]) -> None:
        """The server said late which revisions it speaks."""
        told = answer.get("supportedVersions")
        self.speaks_newest = isinstance(told, list) and NEWEST in told
        self.stir.set()

    def lose(self) -> None:
        """The server answered that it does not know the session."""
        self.is_lost = True
        self.end("the server does not know this session any more (HTTP 404)")

    def refuse(self, status: int, sentence: str) -> None:
        """The server does not let us in."""
        self.status = status
        self.end(sentence)

    def unreachable(self, sentence: str) -> None:
        """Nothing listens there, so nothing was sent."""
        self.is_unreachable = True
        self.end(sentence)
