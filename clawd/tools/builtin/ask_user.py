"""The tool `ask_user`: puts a question to the person."""

import asyncio
from typing import Any, ClassVar

from typing_extensions import override

from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import object_schema
from clawd.wire.safe_text import paragraph, single_line

ANSWER_LIMIT_S = 120.0
_MAX_QUESTION = 2000
_MAX_OPTIONS = 10
_NO_ANSWER = "nobody answered; go on with what you know, or say what you need"


class AskUserTool(Tool):
    """Asks and waits for the answer."""

    name: ClassVar[str] = "ask_user"
    short: ClassVar[str] = "Ask the user a question and wait for the answer."
    description: ClassVar[str] = (
        "Puts one question to the person, with up to ten options to choose from, and answers what "
        "they said. Use it when a choice is theirs to make; do not ask what a tool can find out. "
        "No answer within two minutes is an error that says so."
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
    timeout_s: float = ANSWER_LIMIT_S + 10

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="asks the user")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        question = paragraph(arguments["question"]).strip()[:_MAX_QUESTION]
        if not question:
            return failed("the question is empty")
        if context.ask is None:
            return failed(f"there is nobody to ask: {_NO_ANSWER}")
        options = tuple(single_line(option) for option in arguments.get("options", ()))
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                answer = await context.ask(question, options[:_MAX_OPTIONS])
        except TimeoutError:
            answer = None
        return failed(_NO_ANSWER) if answer is None else succeeded(answer)
