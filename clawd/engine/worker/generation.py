"""One generation on its way: what is still to be decoded, what it said so far, why it ended."""

import codecs
from collections import deque
from collections.abc import Mapping
from typing import Any

from clawd.engine import protocol
from clawd.engine.worker.backend import Sampler
from clawd.engine.worker.pictures import Encoding, PictureSpan, spans_of
from clawd.engine.worker.prompt import Part, tokens_of
from clawd.engine.worker.prompt_lookup import Drafter
from clawd.engine.worker.slots import Slot
from clawd.wire.events import PromptProgress
from clawd.wire.pictures import Picture

# Bytes of tokens to text that may be shown: whole characters, nothing of a stop string.
#
# Both classes are forward-only; what they hold back is bounded by a character and by the longest
# stop string.


class Utf8Decoder:
    """Joins pieces that may end inside a character; bytes that are no UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, piece: bytes) -> str:
        """Take bytes and return the text that is whole now."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Return what an unfinished character leaves behind."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Finds the first of several stop strings in a stream of text.

    Text that may be the beginning of a stop string is held until it is known not to be.
    `stopped_by` is the string that was found.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.is_stopped = False
        self.stopped_by = ""

    def push(self, text: str) -> str:
        """Take text and return what may be shown; nothing any more once a stop was found."""
        if not self._stops:
            return text
        if self.is_stopped:
            return ""
        text = self._held + text
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            self.is_stopped = True
            self._held = ""
            return text[:at]
        hold = self._length_to_hold(text)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        """Return what is held: the stream ended, so it is no stop string."""
        held, self._held = self._held, ""
        return held

    def _length_to_hold(self, text: str) -> int:
        longest = min(max(map(len, self._stops)) - 1, len(text))
        for size in range(longest, 0, -1):
            tail = text[len(text) - size :]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0


# A tiny model says little and soon falls into loops: it is ended before its limit of tokens is.
TINY_LOOP_TOKENS = 96
# Repetition is looked for in runs of 1/16 of the tokens that are watched. Lines of n tokens that
# are alike but for one new token each hold 512 / n * 32 + n - 32 different runs in 512 tokens,
# which is 224 or more for any n; so tables, lists and code are no loops, and with runs that long
# arrays of bits are none. Loops have a quarter of so many different runs as tokens, or fewer.
_RUNS_PER_WATCH = 16
_MOST_RUNS = 4
# Longer passages, of half the tokens, are loops when they come again and again without the least
# change.
_LONGEST_PASSAGE = 2
_TOKEN_BYTES = 4


class LoopWatch:
    """Finds out that an answer repeats itself; `push` gets every token of it.

    Args:
        watched: how many tokens that do nothing but repeat themselves make a loop.
    """

    def __init__(self, watched: int) -> None:
        self._watched = watched
        self._run_bytes = _TOKEN_BYTES * (watched // _RUNS_PER_WATCH)
        self._most_runs = watched - watched // _RUNS_PER_WATCH
        # The last run as bytes, which are looked up faster than numbers.
        self._run = b""
        self._runs: deque[bytes] = deque()
        # When each of them came last.
        self._last_at: dict[bytes, int] = {}
        self._at = 0
        self._period = 0
        self._repeated = 0

    def push(self, token: int) -> bool:
        """Take a token; return whether the last ones were nothing but repetition."""
        run = self._run = (self._run + token.to_bytes(_TOKEN_BYTES))[-self._run_bytes :]
        if len(run) < self._run_bytes:
            return False
        self._at += 1
        self._note_period(run)
        self._runs.append(run)
        if self._at <= self._most_runs:
            return False
        oldest = self._runs.popleft()
        if self._last_at[oldest] == self._at - self._most_runs:
            del self._last_at[oldest]
        is_periodic = self._repeated >= self._watched - 2 * (self._watched // _RUNS_PER_WATCH)
        return len(self._last_at) <= self._watched // _MOST_RUNS or is_periodic

    def _note_period(self, run: bytes) -> None:
        period = self._at - self._last_at.get(run, self._at)
        self._last_at[run] = self._at
        is_same = 0 < period <= self._watched // _LONGEST_PASSAGE and period == self._period
        self._period, self._repeated = period, self._repeated + 1 if is_same else 0


PROMPT_END_CHARACTERS = 64


class GenerationState:
    """The state of one request from the queue to its end.

    `tokens` is everything that must be in the memory before the next token can be sampled: the
    prompt, and what was generated since. It survives the loss of the slot, so a generation that
    had to give its cells to an older one goes on where it was.
    """

    def __init__(self, number: int, parts: tuple[Part, ...], sampling: protocol.Sampling) -> None:
        self.number = number
        self.parts = parts
        self.sampling = sampling
        self.tokens = tokens_of(parts)
        self.prompt_tokens = len(self.tokens)
        self.cached_tokens = 0
        self.generated = 0
        self.admitted_at = 0.0
        self.slot: Slot | None = None
        self.sampler: Sampler | None = None
        self._evaluated_at = 0.0
        self._is_evaluated = False
        self._decoder = Utf8Decoder()
        self._stops = StopMatcher(sampling.stop)
        self._text: list[str] = []
        self._new_text: list[str] = []
        self._new_tokens = 0
        self._new_logprobs: list[protocol.TokenLogprob] = []
        self._limit = sampling.max_tokens or protocol.MAX_ANSWER_TOKENS
        loop_tokens = sampling.loop_tokens or protocol.LOOP_TOKENS
        self._loops = None if sampling.stop_loops is False else LoopWatch(loop_tokens)
        self._is_loop = False
        self.quarantined: dict[str, str] = {}
        self.fallback = ""  # of the chat template
        self._prompt_end = parts[-1].text[-PROMPT_END_CHARACTERS:] if parts else ""
        self.drafter: Drafter | None = None
        self.drafted_tokens = 0
        self.accepted_tokens = 0
        self._spans = spans_of(self.tokens)
        # By number: which picture's piece it is, and its index there.
        self.pieces: dict[int, tuple[Picture, int]] = {}
        self.encoding: Encoding | None = None
        # Of the piece with this number.
        self.embeddings: tuple[int, Any] | None = None

    @property
    def span(self) -> PictureSpan | None:
        """Return the piece of a picture that is to be decoded next, wholly or its rest."""
        at = len(self.slot.tokens) if self.slot else 0
        return next((span for span in self._spans if span.start <= at < span.end), None)

    def lag(self, length: int, lags: Mapping[int, int]) -> int:
        """Return by how many the first `length` tokens are more than their positions."""
        return sum(lags.get(span.number, 0) for span in self._spans if span.end <= length)

    @property
    def stretch(self) -> int:
        """Return how many of the pending tokens can be decoded in one batch, by what they are.

        Of a piece of a picture none before it is encoded.
        """
        at = len(self.slot.tokens) if self.slot else 0
        span = self.span
        if span is not None:
            is_encoded = self.embeddings is not None and self.embeddings[0] == span.number
            return span.end - at if is_encoded else 0
        return (
            min((span.start for span in self._spans if span.start > at), default=len(self.tokens))
            - at
        )

    @property
    def pending(self) -> int:
        """Return how many tokens are not decoded yet; 1 means that it is decoding."""
        return len(self.tokens) - (len(self.slot.tokens) if self.slot else 0)

    @property
    def is_decoding(self) -> bool:
        """Return whether the prompt is evaluated and only the last sampled token is pending."""
        return self._is_evaluated and self.pending == 1

    @property
    def left_to_say(self) -> int:
        """Return how many tokens it may still generate, as far as its limit goes."""
        return self._limit - self.generated

    @property
    def is_evaluated(self) -> bool:
        """Return whether the whole prompt was evaluated once."""
        return self._is_evaluated

    def progress(self) -> protocol.PromptStep:
        """Return how far the prompt is."""
        processed = len(self.slot.tokens) if self.slot else 0
        progress = PromptProgress(
            processed=processed, cached=self.cached_tokens, total=self.prompt_tokens
        )
        return protocol.PromptStep(id=self.number, progress=progress)

    def mark_evaluated(self, now: float, n_ctx: int) -> protocol.GenerationStarted:
        """Note that the prompt is evaluated and return the event."""
        self._is_evaluated = True
        self._evaluated_at = now
        return protocol.GenerationStarted(
            id=self.number,
            tokens=self.prompt_tokens,
            cached=self.cached_tokens,
            elapsed_ms=(now - self.admitted_at) * 1000,
            n_ctx=n_ctx,
            quarantined=self.quarantined,
            fallback=self.fallback,
            prompt_end=self._prompt_end,
        )

    def begin_drafts(self) -> None:
        """Guess from now on what comes next."""
        self.drafter = Drafter(self.tokens)

    def push(self, token: int, piece: bytes) -> protocol.DoneReason | None:
        """Take a sampled token; return why the generation ends with it, if it does."""
        self.tokens.append(token)
        if self.drafter is not None:
            self.drafter.push(token)
        self.generated += 1
        self._new_tokens += 1
        text = self._decoder.push(piece)
        self._text.append(text)
        self._new_text.append(self._stops.push(text))
        if self._stops.is_stopped:
            return "stop"
        if self._loops is not None and self._loops.push(token):
            self._is_loop = True
            return "stop"
        return "length" if self.generated == self._limit else None

    def note_logprob(self, logprob: protocol.TokenLogprob) -> None:
        """Take the log probability of the token that is pushed next."""
        self._new_logprobs.append(logprob)

    def take_tokens(self) -> protocol.Tokens | None:
        """Return what was generated since the last call, or None if nothing was."""
        text = "".join(self._new_text)
        self._new_text.clear()
        if not self._new_tokens and not text:
            return None
        count, self._new_tokens = self._new_tokens, 0
        logprobs = tuple(self._new_logprobs)
        self._new_logprobs.clear()
        return protocol.Tokens(id=self.number, text=text, count=count, logprobs=logprobs)

    def finish(
        self, reason: protocol.DoneReason, now: float
    ) -> tuple[protocol.Tokens | None, protocol.GenerationDone]:
        """Return the last text and the event that ends the generation; frees the sampler."""
        lifted = self.sampler.lifted if self.sampler is not None else ""
        likely = self.sampler.likely if self.sampler is not None else 1.0
        self.close()
        rest = self._decoder.flush()
        self._text.append(rest)
        self._new_text.append(self._stops.push(rest))
        self._new_text.append(self._stops.flush())
        done = protocol.GenerationDone(
            id=self.number,
            reason=reason,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.generated,
            elapsed_ms=(now - self._evaluated_at) * 1000 if self._is_evaluated else 0.0,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            stopped_by=self._stops.stopped_by,
            lifted=lifted,
            likely=likely,
            is_loop=self._is_loop,
        )
        return self.take_tokens(), done

    def close(self) -> None:
        """Free the sampler, and give up what is encoded; harmless when done twice."""
        self.stop_encoding()
        sampler, self.sampler = self.sampler, None
        if sampler is not None:
            sampler.close()

    def stop_encoding(self) -> None:
        """Give up the piece of a picture that is being encoded, and forget one that was."""
        encoding, self.encoding, self.embeddings = self.encoding, None, None
        if encoding is not None:
            encoding.stop()

    def history(self) -> tuple[Part, ...]:
        """Return the parts of the prompt and of what was generated."""
        generated = tuple(self.tokens[self.prompt_tokens :])
        if not generated:
            return self.parts
        part = Part(text="".join(self._text), tokens=generated, generated=True)
        return (*self.parts, part)
