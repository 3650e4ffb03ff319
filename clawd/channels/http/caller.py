"""Who sent a request, as handlers and middlewares find it."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from clawd.channels.http.exchange import Caller
from clawd.errors import ForbiddenError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


def caller_of(request: web.Request) -> Caller:
    """Return who sent a request; the middleware about keys has put it there.

    Raises:
        ForbiddenError: nobody has: a handler is never reached without.
    """
    caller = request.get(CALLER)
    if not isinstance(caller, Caller):
        raise ForbiddenError("nobody vouches for this request")
    return caller
