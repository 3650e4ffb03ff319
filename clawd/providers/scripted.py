"""The `mock` provider: answers from a script, deterministically; without one it echoes.

The script is JSON, checked in one pass:

    {"replies": [
      {"when": "files", "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]},
      {"when": "files", "after": "tool", "text": "I see: {{last_tool_result}}"},
      {"text": "Hello.", "reasoning": "A greeting.", "delay_s": 0.1},
      {"error": {"kind": "http", "status": 500}}
    ]}
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.errors import ConfigError, ProviderError
from clawd.providers.base import (
    CallDelta,
    Capabilities,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Infill,
    strip_context_block,
)
from clawd.wire.events import HopUsage, ReasoningDelta, TextDelta

After = Literal["user", "tool", "any"]
MAX_SCRIPT_BYTES = 16 * 1024 * 1024
_MAX_CONVERSATIONS = 1000
_PIECE = re.compile(r"\s*\S+\s*|\s+")
_TRANSCRIPT = re.compile(r"<transcript>\n\[[^\]\n]*\] ?([^\n]*)(?s:.*)\n\nWrite the summary")
_PLACEHOLDER = re.compile(r"\{\{(last_user|last_tool_result|tool_results|pictures)\}\}")


class ScriptedError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a reply fails; `status` belongs to kind `http`."""

    kind: Literal["network", "auth", "timeout", "http"]
    status: int = 500


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call: arguments as an object, or as raw text that need not be JSON."""

    name: str
    arguments: dict[str, Any] | str = {}


class ScriptedReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply of the script.

    Attributes:
        when: it answers a last user message that holds this text; None takes its turn in order.
        after: role of the last message; None is `user` with `when`, else `any`.
        first_offered: of the calls only the first whose tool is offered.
        error: what it ends with, after its text.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    delay_s: float = 0.0
    error: ScriptedError | None = None
    when: str | None = None
    after: After | None = None
    first_offered: bool = False


class ScriptedReplies(msgspec.Struct, frozen=True, kw_only=True):
    """All replies, in the order of the file."""

    replies: tuple[ScriptedReply, ...]


def load_script(path: Path) -> ScriptedReplies:
    """Read a script file.

    Raises:
        ConfigError: it cannot be read or is no script; names every problem.
    """
    try:
        if path.stat().st_size > MAX_SCRIPT_BYTES:
            raise ConfigError(f"script {path} is over {MAX_SCRIPT_BYTES} bytes")
        text = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"script {path} cannot be read: {error}",
            hint="Check `script` of the provider, or CLAWD_MOCK_SCRIPT.",
        ) from error
    return parse_script(text, source=str(path))


def parse_script(text: str, *, source: str = "script") -> ScriptedReplies:
    """Check a script's text.

    Raises:
        ConfigError: it is no script; names every problem.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not JSON: {error}", problems=(str(error),)) from error
    problems: list[str] = []
    replies = _replies(document, problems)
    if problems:
        lines = "\n".join(problems)
        raise ConfigError(f"{source} is no script:\n{lines}", problems=tuple(problems))
    return ScriptedReplies(replies=tuple(replies))


def _replies(document: object, problems: list[str]) -> list[ScriptedReply]:
    if not isinstance(document, dict) or not isinstance(document.get("replies"), list):
        problems.append('expected an object with a list "replies"')
        return []
    problems += [f"unknown key {key!r}; expected: replies" for key in document if key != "replies"]
    if not document["replies"]:
        problems.append("replies: the list is empty")
    replies: list[ScriptedReply] = []
    for number, entry in enumerate(document["replies"]):
        if reply := _reply(entry, f"replies[{number}]", problems):
            replies.append(reply)
    return replies


def _reply(entry: object, where: str, problems: list[str]) -> ScriptedReply | None:
    """Check key by key, so that every problem of a reply is named."""
    if not isinstance(entry, dict):
        problems.append(f"{where}: expected an object, got {entry!r}")
        return None
    types = {field.name: field.type for field in msgspec.structs.fields(ScriptedReply)}
    found: list[str] = []
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in types:
            found.append(f"{where}: unknown key {key!r}; expected: {', '.join(types)}")
            continue
        try:
            values[key] = msgspec.convert(value, types[key])
        except (msgspec.ValidationError, RecursionError) as error:
            found.append(f"{where}.{key}: {error}")
    delay_s = values.get("delay_s", 0.0)
    if not 0.0 <= delay_s < float("inf"):
        found.append(f"{where}.delay_s: expected seconds of 0 or more, got {delay_s!r}")
    problems += found
    return None if found else ScriptedReply(**values)


class ScriptedProvider:
    """Answers from a script; a raw prompt counts as what the user said last.

    A reply whose `when` is found in the last user message goes first; else the next reply
    without `when` that was not used in this conversation (metadata `conversation_id`), and when
    none is left the last one again.
    """

    def __init__(
        self,
        name: str = "mock",
        script: ScriptedReplies | None = None,
        *,
        tools: bool = True,
        vision: bool = True,
    ) -> None:
        self._name = name
        self._vision = vision
        self._script = script
        self._tools = tools
        self._used: OrderedDict[str, set[int]] = OrderedDict()
        self._calls = 0

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        return Capabilities(local=True, tools=self._tools)

    def sees(self, _model: str) -> bool:
        """Return whether it tells of pictures."""
        return self._vision

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request."""
        reply = self._choose(request)
        if reply is None:
            yield Failed(error=_no_reply(request))
            return
        if reply.delay_s:
            await asyncio.sleep(reply.delay_s)
        deltas = self._deltas(reply, request)
        for delta in deltas:
            yield delta
            await asyncio.sleep(0)
        if reply.error is not None:
            yield Failed(error=_error(reply.error), partial=bool(deltas))
            return
        yield Finished(
            reason="tool_calls" if any(isinstance(d, CallDelta) for d in deltas) else "stop",
            usage=HopUsage(prompt_tokens=_words(request), completion_tokens=len(deltas)),
            provider=self._name,
            model=request.model or "mock",
        )

    async def check(self) -> str:
        """Say what it answers from."""
        if self._script is None:
            return f"{self._name} echoes: it has no script"
        return f"{self._name} answers from a script of {len(self._script.replies)} replies"

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _choose(self, request: ChatRequest) -> ScriptedReply | None:
        if self._script is None:
            return ScriptedReply(text="{{last_user}}")
        last_role = request.messages[-1].role if request.messages else "user"
        conversation = request.metadata.get("conversation_id", "")
        used = self._used.setdefault(conversation, set())
        self._used.move_to_end(conversation)
        if len(self._used) > _MAX_CONVERSATIONS:
            self._used.popitem(last=False)
        next_number, chosen = -1, None
        for number, reply in enumerate(self._script.replies):
            after = reply.after or ("any" if reply.when is None else "user")
            if after not in {"any", last_role}:
                continue
            if reply.when is not None:
                if reply.when in _last_user(request):
                    return reply
            elif next_number < 0 or next_number in used:  # the last again when all are used
                next_number, chosen = number, reply
        if chosen is not None:
            used.add(next_number)
        return chosen

    def _deltas(self, reply: ScriptedReply, request: ChatRequest) -> list[Delta]:
        deltas: list[Delta] = [
            ReasoningDelta(text=piece)
            for piece in _PIECE.findall(_filled(reply.reasoning, request))
        ]
        text = _filled(reply.text, request)
        deltas += [TextDelta(text=piece) for piece in _PIECE.findall(text)]
        calls = reply.tool_calls
        if reply.first_offered:
            offered = {tool.name for tool in request.tools}
            calls = tuple(call for call in calls if call.name in offered)[:1]
        for index, call in enumerate(calls[:1] if request.parallel_calls is False else calls):
            self._calls += 1
            arguments = call.arguments
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            half = len(arguments) // 2
            deltas += [
                CallDelta(index=index, id=f"call_{self._calls}", name=call.name),
                CallDelta(index=index, arguments=arguments[:half]),
                CallDelta(index=index, arguments=arguments[half:]),
            ]
        return deltas


def _filled(template: str, request: ChatRequest) -> str:
    """Fill the placeholders in, once: what is filled in is not looked at again."""
    if "{{" not in template:
        return template
    results = _tool_results(request)
    every = [message.content or "" for message in request.messages if message.role == "tool"]
    values = {
        "last_user": _echoed(_last_user(request)),
        "last_tool_result": every[-1] if every else "",
        "tool_results": "\n".join(results),
        "pictures": "\n".join(
            f"{picture.media_type} {picture.width}x{picture.height} {picture.sha256}"
            for message in request.messages
            for picture in message.pictures
        ),
    }
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def _echoed(said: str) -> str:
    """Return what is echoed of a message: a transcript that is to be summarised by its beginning.

    An echo of the order to summarise is no summary, and would be refused as one.
    """
    begun = _TRANSCRIPT.match(said)
    return f"The conversation begins with: {begun[1][:80]}" if begun is not None else said


def _last_user(request: ChatRequest) -> str:
    if request.prompt is not None:
        prompt = request.prompt
        if isinstance(prompt, Infill):
            return prompt.prefix
        return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
    for message in reversed(request.messages):
        if message.role == "user":
            return strip_context_block(message.content or "")
    return ""


def _tool_results(request: ChatRequest) -> list[str]:
    """Return the tool results since the last user message, oldest first."""
    results: list[str] = []
    for message in reversed(request.messages):
        if message.role == "user":
            break
        if message.role == "tool":
            results.insert(0, message.content or "")
    return results


def _words(request: ChatRequest) -> int:
    if isinstance(request.prompt, tuple):
        return len(request.prompt)
    prompt = request.prompt or ""
    if isinstance(prompt, Infill):
        prompt = f"{prompt.prefix} {prompt.suffix}"
    texts = (prompt, request.system, *(message.content or "" for message in request.messages))
    return sum(len(text.split()) for text in texts)


def _error(error: ScriptedError) -> ProviderError:
    if error.kind == "http":
        message = f"HTTP {error.status}: scripted failure"
        return ProviderError(message, kind="http", status=error.status)
    return ProviderError(f"scripted failure of kind {error.kind}", kind=error.kind)


def _no_reply(request: ChatRequest) -> ProviderError:
    return ProviderError(
        f"no reply of the script fits the last message: {_last_user(request)[:80]!r}",
        kind="invalid",
        hint="Add a reply without `when`, or with after = any.",
    )
