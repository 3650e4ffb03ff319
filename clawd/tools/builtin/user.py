"""The tools that turn to the user: `ask_user`, and `open_url`, which opens a page for them."""

from typing import Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import object_schema
from clawd.wire.events import PAGE_OPENED
from clawd.wire.safe_text import paragraph, single_line

_MAX_QUESTION = 2000
_MAX_OPTIONS = 10
NO_ANSWER = "nobody answered; go on with what you know, or say what you need"
MAX_URL_CHARACTERS = 2_000
# Of clients that know questions and no pages: they showed the address, and open nothing.
_WHY = {
    None: "nobody answered",
    "": "the user does not want it",
    "no": "the user does not want it",
    "yes": "the user's client shows addresses and opens none",
}
_NOT_IN_A_URL = frozenset(" \"'<>\\^`{|}")


class AskUserTool(Tool):
    """Asks and waits for the answer."""

    name: ClassVar[str] = "ask_user"
    short: ClassVar[str] = "Ask the user a question and wait for the answer."
    description: ClassVar[str] = (
        "Puts one question to the person, with up to ten options to choose from, and answers what "
        "they said. Use it when a choice is theirs to make; do not ask what a tool can find out. "
        "When nobody answers, that is an error that says so."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "question": {"type": "string", "description": "The question."},
            "options": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Answers to choose from.",
            },
        },
        "question",
    )
    waits_for_person: ClassVar[bool] = True

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="asks the user")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        question = paragraph(arguments["question"]).strip()[:_MAX_QUESTION]
        if not question:
            return failed("the question is empty")
        if context.ask is None:
            return failed(f"there is nobody to ask: {NO_ANSWER}")
        options = tuple(single_line(option) for option in arguments.get("options", ()))
        answer = await context.ask(question, options[:_MAX_OPTIONS])
        return failed(NO_ANSWER) if answer is None else succeeded(answer)


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
    waits_for_person: ClassVar[bool] = True

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
