"""The methods of the control socket: for each a struct of parameters, named like the method.

`SendMessage` is method `send_message`, the function `send_message` handles it, and a client calls
it with `client.call(SendMessage(…))` or, where `streams` is true, `client.stream(SendMessage(…))`.
The type argument of the base is the result's type, which stands beside it. Lists are paged: pass
the `cursor` of the page before.
"""

from typing import Any

from clawd.wire import (
    conversations,
    daemon,
    mcp,
    memory,
    models,
    policy,
    receipts,
    schedules,
    skills,
    sops,
    tools,
    turns,
)
from clawd.wire.method import Method, method_name

RESOURCES = (
    conversations,
    daemon,
    mcp,
    memory,
    models,
    policy,
    receipts,
    schedules,
    skills,
    sops,
    tools,
    turns,
)
"""The modules with methods."""

METHODS: dict[str, type[Method[Any]]] = {
    method_name(kind): kind
    for resource in RESOURCES
    for kind in vars(resource).values()
    if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
}
"""What every method of the control socket is, and its name on the wire."""
