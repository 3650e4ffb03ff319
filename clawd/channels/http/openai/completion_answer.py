"""Writes answers as /v1/completions does: `text_completion`, whole or in chunks.

data: {"id":"cmpl-…","object":"text_completion","choices":[{"index":0,"text":"Hello",
       "logprobs":null,"finish_reason":null}],…}
data: [DONE]
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from clawd.channels.http.exchange import Answered, GatewayEvent, Generation
from clawd.channels.http.openai.chat_request import Telling
from clawd.channels.http.openai.progress import ProgressTold
from clawd.channels.http.openai.wording import (
    DONE,
    FINGERPRINT,
    PING,
    STREAM_TYPE,
    error_value,
    new_id,
    of_content,
    sse,
    timings_value,
    usage_value,
)
from clawd.providers.base import Evaluated, Finished, Progress, Text, TokenLogprob, Usage


class CompletionAnswer:
    """One answer of /v1/completions.

    Args:
        telling: how the client wants it.
        before: the text that stands before each choice: its prompt where that is asked for.
        choices: how many answer each prompt.
    """

    content_type = STREAM_TYPE
    ping = PING

    def __init__(self, telling: Telling, *, before: Sequence[str], choices: int = 1) -> None:
        self._telling = telling
        self._per_prompt = choices
        self._before = tuple(before)
        self._id = new_id("cmpl-")
        self._created = int(time.time())
        self._model = ""
        self._texts = [""] * len(self._before)
        self._told_logprobs = [0] * len(self._before)
        self._evaluated: dict[int, Evaluated] = {}
        self._usages = [Usage()] * len(self._before)
        self._progress = ProgressTold()

    def begin(self, generations: Sequence[Generation]) -> Iterable[bytes]:
        """Return the prompts, where they are to be echoed."""
        self._model = generations[0].model
        for index, text in enumerate(self._before):
            if text:
                yield self._chunk(index, text)

    def take(self, number: int, event: GatewayEvent) -> Iterable[bytes]:
        """Return the chunks of an event of a choice."""
        match event:
            case Finished():
                self._usages[number] = event.usage
                return self._finish(number, event)
            case Text():
                return self._said(number, event)
            case Evaluated():
                self._evaluated[number] = event
                return self._progressed(self._progress.finish(event)) if number == 0 else ()
            case Progress():
                return self._progressed(self._progress.take(event)) if number == 0 else ()
            case _:
                return ()

    def end(self) -> Iterable[bytes]:
        """Return what closes the stream."""
        if self._telling.usage:
            usage = usage_value(self._usages, choices=self._per_prompt)
            yield sse(self._frame([]) | {"usage": usage})
        yield DONE

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what every client raises as an error."""
        return (sse(error_value(error)),)

    def whole(self, generations: Sequence[Generation], answers: Sequence[Answered]) -> Any:
        """Return a whole completion."""
        told: dict[str, Any] = self._frame([]) | {
            "model": generations[0].model,
            "choices": [self._choice(index, each) for index, each in enumerate(answers)],
            "usage": usage_value([each.usage for each in answers], choices=self._per_prompt),
        }
        timings = timings_value(answers[0].evaluated, answers[0].finished)
        return told | ({"timings": timings} if timings is not None else {})

    def _said(self, index: int, event: Text) -> list[bytes]:
        offset = len(self._before[index]) + len(self._texts[index])
        self._texts[index] += event.text
        self._told_logprobs[index] += len(event.logprobs)
        if not event.text and not event.logprobs:
            return []
        return [self._chunk(index, event.text, _logprobs(event.logprobs, offset))]

    def _progressed(self, events: Iterable[Progress]) -> list[bytes]:
        if not self._telling.llama_progress:
            return []
        return [
            sse(self._frame([]) | {"prompt_progress": self._progress.value(event)})
            for event in events
        ]

    def _finish(self, index: int, finished: Finished) -> list[bytes]:
        chunks: list[bytes] = []
        if finished.logprobs and not self._told_logprobs[index]:
            tokens = of_content(finished.logprobs, self._texts[index])
            chunks.append(self._chunk(index, "", _logprobs(tokens, len(self._before[index]))))
        frame = self._frame([_piece(index, "", None, _reason(finished))])
        timings = timings_value(self._evaluated.get(index), finished)
        return [*chunks, sse(frame | ({"timings": timings} if timings is not None else {}))]

    def _choice(self, index: int, answered: Answered) -> dict[str, Any]:
        before = self._before[index]
        tokens = of_content(answered.logprobs, answered.text)
        told = _logprobs(tokens, len(before))
        return _piece(index, before + answered.text, told, _reason(answered.finished))

    def _chunk(self, index: int, text: str, logprobs: dict[str, Any] | None = None) -> bytes:
        return sse(self._frame([_piece(index, text, logprobs, None)]))

    def _frame(self, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }


def _piece(
    index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def _reason(finished: Finished) -> str:
    return "length" if finished.reason == "length" else "stop"


def _logprobs(tokens: tuple[TokenLogprob, ...], offset: int) -> dict[str, Any] | None:
    """Return the old form of log probabilities: lists side by side."""
    if not tokens:
        return None
    offsets: list[int] = []
    joined = b""
    for token in tokens:
        offsets.append(offset + len(joined.decode(errors="ignore")))
        joined += token.piece
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_bounded(token.logprob) for token in tokens],
        "top_logprobs": [
            {one.text: _bounded(one.logprob) for one in token.top} for token in tokens
        ],
        "text_offset": offsets,
    }


def _bounded(logprob: float) -> float:
    return min(0.0, max(-1e4, logprob))
