"""Writes answers as /v1/responses does: a whole one, or a numbered stream of named events.

    event: response.created
    data: {"type":"response.created","sequence_number":0,"response":{…"status":"in_progress"}}
    …
    event: response.completed
    data: {"type":"response.completed","sequence_number":9,"response":{…"output":[…],"usage":{…}}}

A whole answer is what the stream of it would have ended with. What clawd does beside the answer
comes as events named clawd.…, and only to who asked.
"""

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from clawd.channels.http.clawd_events import shown
from clawd.channels.http.errors import message_of
from clawd.channels.http.exchange import Answered, GatewayEvent, Generation
from clawd.channels.http.openai.progress import ProgressTold
from clawd.channels.http.openai.response_items import (
    CallItem,
    Item,
    MessageItem,
    ReasoningItem,
    Told,
)
from clawd.channels.http.openai.response_request import ResponseAsked
from clawd.channels.http.openai.wording import (
    PING,
    STREAM_TYPE,
    beside,
    error_value,
    new_id,
    of_content,
    sse,
)
from clawd.providers.base import (
    CallDelta,
    Evaluated,
    Failed,
    Finished,
    Progress,
    Reasoning,
    Text,
    TokenLogprob,
    Usage,
)


class _Waiting(msgspec.Struct):
    """A call whose name is not known yet."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class ResponseAnswer:
    """One answer of /v1/responses."""

    content_type = STREAM_TYPE
    ping = PING

    def __init__(self, asked: ResponseAsked) -> None:
        self._asked = asked
        self._id = new_id("resp_")
        self._created = int(time.time())
        self._model = ""
        self._number = 0
        self._items: list[Item] = []
        self._said: MessageItem | None = None
        self._thought: ReasoningItem | None = None
        self._calls: dict[int, CallItem] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._progress = ProgressTold()

    def begin(self, generation: Generation) -> Iterable[bytes]:
        """Return the events that say that it has begun."""
        self._model = generation.model
        response = self._response("in_progress")
        yield self._event("response.created", {"response": response})
        yield self._event("response.in_progress", {"response": response})

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        """Return the events that tell one of clawd's."""
        match event:
            case Text() | Reasoning() | CallDelta():
                return self._written(self._content(event))
            case Finished():
                return self._finish(event)
            case Failed():
                return ()
            case Progress() | Evaluated():
                return self._prompt(event) if self._asked.progress else ()
            case _:
                return self._beside(event) if self._asked.events else ()

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what clients raise as an error, and the response that failed."""
        told = error_value(error)
        inner = told["error"]
        flat = {name: inner[name] for name in ("code", "message", "param")}
        failed = self._response("failed") | {
            "error": {"code": inner["code"], "message": message_of(error)}
        }
        yield self._event("error", told | flat)
        yield self._event("response.failed", {"response": failed})

    def whole(self, generation: Generation, answered: Answered) -> Any:
        """Return a whole response."""
        self._model = generation.model
        if answered.reasoning:
            self._content(Reasoning(text=answered.reasoning))
        if answered.text:
            tokens = of_content(answered.logprobs, answered.text)
            self._content(Text(text=answered.text, logprobs=tokens))
        for index, call in enumerate(answered.calls):
            delta = CallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)
            self._content(delta)
        self._close_all(answered.finished)
        told = beside(generation.conversation_id, answered)
        response = self._ended(answered.finished)
        return response | ({"clawd": told} if told is not None else {})

    def _content(self, event: Text | Reasoning | CallDelta) -> list[Told]:
        match event:
            case Text():
                return self._say(event.text, event.logprobs)
            case Reasoning():
                return self._think(event.text)
            case CallDelta():
                return self._call(event)

    def _say(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> list[Told]:
        told: list[Told] = []
        if self._said is None:
            told += self._close_thought()
            self._said = MessageItem(len(self._items))
            self._items.append(self._said)
            told += self._said.open()
        return told + self._said.add(text, logprobs)

    def _think(self, text: str) -> list[Told]:
        told: list[Told] = []
        if self._thought is None:
            told += self._close_said()
            self._thought = ReasoningItem(len(self._items), is_summary=self._asked.summarises)
            self._items.append(self._thought)
            told += self._thought.open()
        return told + self._thought.add(text)

    def _call(self, delta: CallDelta) -> list[Told]:
        call = self._calls.get(delta.index)
        if call is not None:
            return call.add(delta.arguments) if delta.arguments else []
        waiting = self._waiting.setdefault(delta.index, _Waiting())
        waiting.id = waiting.id or delta.id
        waiting.name = waiting.name or delta.name
        waiting.arguments += delta.arguments
        told: list[Told] = []
        # Items stand in the order of the calls, which need not be the order they begin in.
        while (index := len(self._calls)) in self._waiting and self._waiting[index].name:
            told += self._open_call(index)
        return told

    def _open_call(self, index: int) -> list[Told]:
        waiting = self._waiting.pop(index)
        told = self._close_thought() + self._close_said()
        namespace, name = self._asked.places.get(waiting.name, ("", waiting.name))
        call_id = waiting.id or f"call_{index}"
        call = CallItem(len(self._items), call_id=call_id, name=name, namespace=namespace)
        self._calls[index] = call
        self._items.append(call)
        told += call.open()
        return told + (call.add(waiting.arguments) if waiting.arguments else [])

    def _close_thought(self) -> list[Told]:
        thought, self._thought = self._thought, None
        return thought.close() if thought is not None else []

    def _close_said(self, status: str = "completed") -> list[Told]:
        said, self._said = self._said, None
        return said.close(status) if said is not None else []

    def _close_all(self, finished: Finished) -> list[Told]:
        status = _status(finished)
        told: list[Told] = []
        for index in sorted(self._waiting):
            told += self._open_call(index)
        told += self._close_thought()
        if not any(not isinstance(item, ReasoningItem) for item in self._items):
            told += self._say("", ())
        told += self._close_said(status)
        calls = list(self._calls.values())
        for call in calls:
            told += call.close(status if call is calls[-1] else "completed")
        return told

    def _finish(self, finished: Finished) -> Iterable[bytes]:
        said = self._said
        if said is not None and finished.logprobs and not said.has_logprobs():
            tokens = of_content(finished.logprobs, said.text)
            yield from self._written(said.add("", tokens) if tokens else [])
        yield from self._written(self._close_all(finished))
        response = self._ended(finished)
        yield self._event(f"response.{response['status']}", {"response": response})

    def _prompt(self, event: Progress | Evaluated) -> Iterable[bytes]:
        told = self._progress
        steps = told.finish(event) if isinstance(event, Evaluated) else told.take(event)
        for step in steps:
            yield from self._beside(step)
        if isinstance(event, Evaluated):
            yield from self._beside(event)

    def _beside(self, event: GatewayEvent) -> Iterable[bytes]:
        told = shown(event)
        return (self._event(*told),) if told is not None else ()

    def _written(self, told: list[Told]) -> list[bytes]:
        return [self._event(name, fields) for name, fields in told]

    def _event(self, name: str, fields: dict[str, Any]) -> bytes:
        value = {"type": name, "sequence_number": self._number} | fields
        self._number += 1
        return sse(value, name)

    def _ended(self, finished: Finished) -> dict[str, Any]:
        ended = self._response(_status(finished))
        ended["output"] = [item.value() for item in self._items]
        ended["usage"] = _usage(finished.usage)
        if finished.reason == "length":
            ended["incomplete_details"] = {"reason": "max_output_tokens"}
        return ended

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "metadata": {},
            "model": self._model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
        } | self._asked.echoed


def _status(finished: Finished) -> str:
    return "incomplete" if finished.reason == "length" else "completed"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
