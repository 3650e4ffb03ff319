"""What aiohttp says by itself: to clients whose request cannot be read, and to the log."""

import logging
from typing import Any

from aiohttp import web
from typing_extensions import override

from clawd.channels.http.errors import error_response
from clawd.errors import InvalidRequestError

_log = logging.getLogger(__name__)


class ProtocolLog(logging.Logger):
    """What aiohttp says of connections: that rubbish came is no error of ours."""

    @override
    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        error = kwargs.get("exc_info")
        if isinstance(error, web.HTTPException | ValueError) or type(error).__module__.startswith(
            "aiohttp."
        ):
            _log.debug("what came is no request", extra={"problem": type(error).__name__})
            return
        _log.error(str(msg), *args, exc_info=error if isinstance(error, BaseException) else True)

    @override
    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        return


class Protocol(web.RequestHandler):
    """Answers rubbish in the envelope that most clients read; whose path it was is not known."""

    __slots__ = ()

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs, or says that it is too late
        if status >= web.HTTPInternalServerError.status_code:
            response = error_response("", RuntimeError())
        else:
            told = InvalidRequestError(f"this is no request of HTTP: {_reason(message)}")
            response = error_response("", told, status)
        response.headers["Server"] = "clawd"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.force_close()
        return response


def _reason(message: str | None) -> str:
    """Return what is wrong without what came: there may be a key in it."""
    first = (message or "").partition("\n")[0]
    return first.partition(" when reading")[0].rstrip(": ") or "it cannot be read"
