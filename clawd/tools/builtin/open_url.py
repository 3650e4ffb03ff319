"""The tool `open_url`: shows the person a page, in their own browser, where they say yes."""

from typing import Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.ask_user import ANSWER_LIMIT_S
from clawd.tools.builtin.deps import object_schema
from clawd.wire.events import PAGE_OPENED

MAX_URL_CHARACTERS = 2_000
# Of clients that know questions and no pages: they showed the address, and open nothing.
_WHY = {
    None: "nobody answered",
    "": "the user does not want it",
    "no": "the user does not want it",
    "yes": "the user's client shows addresses and opens none",
}
_NOT_IN_A_URL = frozenset(" \"'<>\\^`{|}")


class OpenUrlTool(Tool):
    """Asks the person, always, and lets their client open the page."""

    name: ClassVar[str] = "open_url"
    short: ClassVar[str] = "Open a web page in the user's browser, when they agree."
    description: ClassVar[str] = (
        "Asks the person whether a page shall open in their own browser, with the address shown "
        "whole. You do not see the page: to read one, use web_fetch. Only http and https "
        "addresses, without a name or password in them. Refused where nobody can be asked."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {"url": {"type": "string", "description": "The address, https://…"}}, "url"
    )
    timeout_s: float = ANSWER_LIMIT_S + 10

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        problem = problem_of(arguments["url"])
        reason = "asks the user to open a page"
        if problem:
            return Assessment(risk="high", reason=reason, blocked=problem)
        # Whatever the conversation holds, the person sees the address and decides.
        return Assessment(risk="low", reason=reason, outward=False)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        if context.open_page is None:
            return failed("there is nobody who could open it: give the address in your answer")
        answer = await context.open_page(arguments["url"])
        if answer == PAGE_OPENED:
            return succeeded("the page was opened in the user's browser")
        return failed(f"the page was not opened: {_WHY.get(answer, answer)}")


def problem_of(url: str) -> str:
    """Return why an address may not be opened, "" when it may."""
    if len(url) > MAX_URL_CHARACTERS:
        return f"the address has {len(url)} characters, at most {MAX_URL_CHARACTERS} may be"
    if not url.isascii() or not url.isprintable() or _NOT_IN_A_URL & set(url):
        return "the address holds characters that stand in no address: percent-encode them"
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is no address"
    if parts.scheme not in {"http", "https"} or not has_host:
        return "only http:// and https:// addresses may be opened"
    if "@" in parts.netloc:
        return "an address with a name or password in it may not be opened"
    return ""
