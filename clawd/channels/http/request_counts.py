"""Counts requests by route and status, and what is open."""

import time

from aiohttp import web

from clawd.channels.http.caller import Handler
from clawd.channels.http.scopes import route_of
from clawd.counts import MAX_SERIES, OTHER, Histogram, Tally

NO_ROUTE = "none"
LEFT = "499"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
WAS_TOLD: web.RequestKey[int] = web.RequestKey("was_told", int)
"""The status of a stream that was sent to its end: who leaves after that has the whole answer."""
IS_STREAM: web.RequestKey[bool] = web.RequestKey("is_stream", bool)
"""Set when the head of an answer in pieces was sent."""


class RequestCounts:
    """What came over HTTP so far.

    Attributes:
        requests: by method, route and status; 499 for a client that left before the end.
        open: requests that are being answered.
        streams: of these, answers that are sent in pieces.
        seconds: how long requests took, by route.
    """

    def __init__(self) -> None:
        self.requests = Tally("method", "route", "status")
        self.open = 0
        self.streams = 0
        self.seconds: dict[str, Histogram] = {}

    def took(self, route: str, seconds: float) -> None:
        """Take note of how long a request took; routes past a bound are one, `other`."""
        known = route in self.seconds or len(self.seconds) < MAX_SERIES
        self.seconds.setdefault(route if known else OTHER, Histogram()).observe(seconds)


COUNTS: web.AppKey[RequestCounts] = web.AppKey("request_counts", RequestCounts)


@web.middleware
async def count_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count a request; stands outside of everything else."""
    counts = request.app[COUNTS]
    method = request.method if request.method in _METHODS else "other"
    status, began = LEFT, time.monotonic()
    counts.open += 1
    try:
        response = await handler(request)
        status = str(response.status)
        return response
    except web.HTTPException as error:
        status = str(error.status)
        raise
    finally:
        if status == LEFT and WAS_TOLD in request:
            status = str(request[WAS_TOLD])
        counts.open -= 1
        counts.streams -= bool(request.get(IS_STREAM))
        route = route_of(request) or NO_ROUTE
        counts.requests.add(method, route, status)
        counts.took(route, time.monotonic() - began)


async def _note_stream(request: web.Request, response: web.StreamResponse) -> None:
    if not isinstance(response, web.Response) and not request.get(IS_STREAM):
        request[IS_STREAM] = True
        request.app[COUNTS].streams += 1


def count_in(app: web.Application) -> None:
    """Let an application count; `count_requests` is the first of its middlewares."""
    app[COUNTS] = RequestCounts()
    app.on_response_prepare.append(_note_stream)
