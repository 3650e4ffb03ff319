"""A memory of many conversations, one of them very long, written before its daemon starts."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from clawd.memory.rows import Conversation, NewMessage
from clawd.memory.store import Memory
from clawd.paths import layout
from clawd.providers.base import Message
from tests.support.home import Home


def fill(home: Home, conversations: int, messages: Sequence[Message] = ()) -> str:
    """Store conversations, titled by their numbers, and messages in the last; return its id."""
    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop of its own in this one
        return thread.submit(asyncio.run, _fill(home, conversations, messages)).result()


async def _fill(home: Home, conversations: int, messages: Sequence[Message]) -> str:
    home.path.mkdir(mode=0o700, exist_ok=True)
    memory = await Memory.open(layout(home.environ).database)
    owner = os.getuid()
    newest = ""
    try:
        for number in range(conversations):
            made = await memory.conversations.create(
                Conversation(
                    owner=owner, workspace=str(home.workspace), title=f"conversation {number}."
                )
            )
            newest = made.id
        rows = [NewMessage(message=message) for message in messages]
        await memory.messages.append(newest, rows, owner=owner, turn_id="turn")
    finally:
        await memory.close()
    return newest


def said(count: int) -> list[Message]:
    """Return questions and answers in turn, with their numbers."""
    return [
        Message(role="assistant" if number % 2 else "user", content=f"message {number}.")
        for number in range(count)
    ]
