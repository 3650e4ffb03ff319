"""A call's arguments as the object that clients read, whatever the model wrote."""

from typing import Any

import msgspec


def object_of(arguments: str) -> dict[str, Any]:
    """Return the arguments; what is no JSON object stands under `unreadable`."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"unreadable": arguments}
    return value if isinstance(value, dict) else {"unreadable": arguments}


def is_whole(arguments: str) -> bool:
    """Say whether the text is a whole JSON value."""
    try:
        msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
