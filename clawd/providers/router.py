"""The `router` provider: equal backends; health, least load, and a way back for conversations.

    backends a, b; conversation 7 was served by a
    chat(7) ── a is up ─────────────────────────▶ a   (holds the KV of the conversation)
    chat(7) ── a refuses, nothing was yielded ──▶ b   (a is down; probes bring it back)
    chat(8) ── fewest requests in flight ───────▶ b

`Routing` decides by labels, load, prefix affinity and health; time is given in seconds of any
monotonic clock. The provider asks, counts and probes.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

import msgspec

from clawd.config.schema import ProviderLabels
from clawd.errors import (
    BusyError,
    ClawError,
    ConfigError,
    InvalidRequestError,
    ProviderError,
    ProviderErrorKind,
)
from clawd.providers.base import Capabilities, ChatRequest, Delta, Failed, Finished, Provider
from clawd.providers.reliable import Retrying
from clawd.wire.events import ModelLoading

# One prompt that a server answers with 500 must not take every backend down: these alone say that
# the server itself cannot serve.
_UNAVAILABLE = frozenset({502, 503, 504})
# Too many requests, and what Anthropic's servers say when they are overloaded.
_BUSY = frozenset({429, 529})
_UNREACHED: frozenset[ProviderErrorKind] = frozenset({"network", "auth", "timeout"})
_MAX_DOUBLINGS = 32
_MAX_HINT_CHARACTERS = 200
_log = logging.getLogger(__name__)


class RouterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a router treats its backends; every time is in seconds.

    Attributes:
        probe_interval_s: a backend that was silent for so long is probed.
        probe_timeout_s: a probe that takes longer has failed.
        probe_idle_s: nothing is probed when nobody has asked the router for so long.
        backoff_initial_s: a failed backend is tried again after this; doubles with each failure.
        backoff_max_s: the longest such wait.
        overload_lead: a conversation leaves its backend when that one has so many requests more
            in flight than the least loaded.
        max_conversations: how many conversations' backends are remembered.
    """

    probe_interval_s: float = 10.0
    probe_timeout_s: float = 5.0
    probe_idle_s: float = 300.0
    backoff_initial_s: float = 1.0
    backoff_max_s: float = 60.0
    overload_lead: int = 4
    max_conversations: int = 10_000


class BackendHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Failures in a row, and when the backend is tried again."""

    failures: int = 0
    retry_at: float = 0.0

    @property
    def is_down(self) -> bool:
        """Whether it failed and has not answered since."""
        return self.failures > 0


class BackendStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How one backend stands when a choice is made.

    Attributes:
        running: requests in flight.
        conversations: how many conversations it served last.
    """

    name: str
    is_up: bool = True
    retry_at: float = 0.0
    running: int = 0
    conversations: int = 0


def wanted_labels(request: ChatRequest) -> ProviderLabels:
    """Return what a request asks of its backend: its own model goes before the hint."""
    hints = request.metadata
    return ProviderLabels(
        model=request.model or hints.get("model", ""),
        cost=hints.get("cost", ""),
        privacy=hints.get("privacy", ""),
        size=hints.get("size", ""),
    )


def check_hints(hints: Mapping[str, str]) -> None:
    """Refuse hints that no router knows: a wish for privacy with a slip in it must not be lost.

    Raises:
        InvalidRequestError: a name is none of the four, or a value is too long.
    """
    names = tuple(ProviderLabels.model_fields)
    for name, value in hints.items():
        if name not in names:
            raise InvalidRequestError(f"there is no hint {name!r}; known: {', '.join(names)}")
        if len(value) > _MAX_HINT_CHARACTERS:
            raise InvalidRequestError(
                f"hint {name} has {len(value)} characters; the limit is {_MAX_HINT_CHARACTERS}"
            )


def meets(labels: ProviderLabels, wanted: ProviderLabels) -> bool:
    """Return whether a backend may answer.

    It must carry every label that is asked for, so that a request marked private never goes to a
    backend that nobody marked. A backend that names no model takes any.
    """
    if wanted.model and labels.model not in {"", wanted.model}:
        return False
    pairs = (
        (labels.cost, wanted.cost),
        (labels.privacy, wanted.privacy),
        (labels.size, wanted.size),
    )
    return all(not asked or carried == asked for carried, asked in pairs)


def choose(
    standings: Sequence[BackendStanding], *, home: str = "", overload_lead: int = 4
) -> str | None:
    """Return the backend to ask, or None when there is none.

    The conversation's `home` as long as it is up and not overloaded; else the one with the fewest
    requests in flight, then with the fewest conversations, then the first. When none is up, the
    one whose next try is due first: a server that just came back answers at once.
    """
    up = [each for each in standings if each.is_up]
    if not up:
        return min(standings, key=lambda each: each.retry_at).name if standings else None
    least = min(up, key=lambda each: (each.running, each.conversations))
    for each in up:
        if each.name == home and each.running - least.running < overload_lead:
            return home
    return least.name


def moves_on(error: Exception) -> bool:
    """Return whether another backend may answer what this one did not."""
    if isinstance(error, ProviderError) and error.kind == "http":
        return takes_down(error) or error.status in _BUSY
    return takes_down(error) or isinstance(error, BusyError)


def takes_down(error: Exception) -> bool:
    """Return whether the failure says that the backend cannot serve anybody now."""
    if not isinstance(error, ProviderError):
        return False
    return error.kind in _UNREACHED or (error.kind == "http" and error.status in _UNAVAILABLE)


def after_failure(health: BackendHealth, *, now: float, settings: RouterSettings) -> BackendHealth:
    """Return the health after a failure; those that failed together count once."""
    if health.is_down and now < health.retry_at:
        return health
    wait_s = settings.backoff_initial_s * 2.0 ** min(health.failures, _MAX_DOUBLINGS)
    return BackendHealth(
        failures=health.failures + 1, retry_at=now + min(wait_s, settings.backoff_max_s)
    )


class Homes:
    """Which backend served a conversation last; forgets those that were silent longest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._homes: OrderedDict[str, str] = OrderedDict()
        self._counts: dict[str, int] = {}

    def of(self, conversation: str) -> str:
        """Return the backend's name, empty for none."""
        return self._homes.get(conversation, "")

    def count(self, backend: str) -> int:
        """Return how many conversations it served last."""
        return self._counts.get(backend, 0)

    def put(self, conversation: str, backend: str) -> None:
        """Remember who served a conversation; one without an id has no home."""
        if not conversation:
            return
        self._drop(conversation)
        self._homes[conversation] = backend
        self._counts[backend] = self.count(backend) + 1
        if len(self._homes) > self._limit:
            self._drop(next(iter(self._homes)))

    def _drop(self, conversation: str) -> None:
        before = self._homes.pop(conversation, None)
        if before is not None:
            self._counts[before] -= 1


def nobody_meets(
    router: str, wanted: ProviderLabels, backends: Mapping[str, ProviderLabels]
) -> ProviderError:
    """Return the error for a request that no backend may answer, with what there is."""
    there = "; ".join(f"{name}: {labels}" for name, labels in backends.items())
    return ProviderError(
        f"no backend of {router} carries {wanted}; there are {there}",
        kind="invalid",
        hint="Ask for less, or give a backend these labels in its section of the config.",
    )


@dataclass(frozen=True, kw_only=True)
class RoutedProvider:
    """One provider behind a router.

    Attributes:
        labels: what requests may ask for; a model named here is what the backend answers with.
        is_probed: whether its `check` is cheap enough to be called again and again. One that is
            not comes back when its backoff is over.
    """

    provider: Provider
    labels: ProviderLabels = field(default_factory=ProviderLabels)
    is_probed: bool = True


class RouterProvider:
    """Answers each request with one of several backends.

    Another backend is asked only before the first delta. The backends stay their owner's, who
    closes them after the router.
    """

    def __init__(
        self,
        name: str,
        backends: Sequence[RoutedProvider],
        settings: RouterSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not backends:
            raise ConfigError(
                f"provider {name} is a router over no providers",
                problems=(f"{name}: providers is empty",),
                hint="Name at least one provider in `providers`.",
            )
        self._name = name
        self._settings = settings or RouterSettings()
        self._clock = clock
        self._members = {
            each.provider.name(): _Member(name, each, self._settings, clock) for each in backends
        }
        self._homes = Homes(self._settings.max_conversations)
        self._asked_at = clock()
        self._probing: asyncio.Task[None] | None = None

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Return what every backend can do: any of them may answer."""
        each = [member.provider.capabilities() for member in self._members.values()]
        sizes = [one.context_size for one in each if one.context_size]
        return Capabilities(
            streaming=all(one.streaming for one in each),
            tools=all(one.tools for one in each),
            local=all(one.local for one in each),
            context_size=min(sizes, default=0),
            heeds_hints=True,
            parallel=1 if any(one.parallel == 1 for one in each) else 0,
        )

    def fronted(self, model: str) -> tuple[tuple[Provider, str], ...]:
        """Return the backends that have a model, in their order; they are equals."""
        wanted = ProviderLabels(model=model)
        return tuple(
            (each.provider, "" if each.labels.model else model)
            for each in self._members.values()
            if meets(each.labels, wanted)
        )

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request with the backend that `routing.choose` names."""
        self._keep_probing()
        wanted = wanted_labels(request)
        left = [each for each in self._members.values() if meets(each.labels, wanted)]
        if not left:
            labels = {name: each.labels for name, each in self._members.items()}
            yield Failed(error=nobody_meets(self._name, wanted, labels))
            return
        conversation = request.metadata.get("conversation_id", "")
        failures: list[tuple[str, ProviderError]] = []
        while left:
            member = self._chosen(left, conversation)
            left.remove(member)
            attempt = _Attempt(member, partial(self._homes.put, conversation, member.name))
            async with aclosing(attempt.chat(request)) as deltas:
                async for delta in deltas:
                    yield delta
            if attempt.failure is None:
                return
            _log.warning(
                "provider %s: %s failed (%s), %s",
                self._name,
                member.name,
                attempt.failure.kind,
                "asking another" if left else "nobody is left to ask",
            )
            failures.append((member.name, attempt.failure))
        yield Failed(error=self._all_failed(failures))

    async def check(self) -> str:
        """Check every backend at once; say which answered and which did not.

        Raises:
            ProviderError: none answered.
        """
        members = list(self._members.values())
        outcomes = await asyncio.gather(*(member.check() for member in members))
        failures = [
            (member.name, outcome)
            for member, outcome in zip(members, outcomes, strict=True)
            if isinstance(outcome, ProviderError)
        ]
        if len(failures) == len(members):
            raise self._all_failed(failures)
        return "\n".join(
            f"{member.name}: "
            + (f"failed: {outcome.message}" if isinstance(outcome, ProviderError) else outcome)
            for member, outcome in zip(members, outcomes, strict=True)
        )

    async def close(self) -> None:
        """End the probes; the backends are closed by who made them."""
        probing, self._probing = self._probing, None
        if probing is not None:
            probing.cancel()
            await asyncio.wait({probing})

    def _chosen(self, left: list["_Member"], conversation: str) -> "_Member":
        standings = [each.standing(self._homes.count(each.name)) for each in left]
        name = choose(
            standings, home=self._homes.of(conversation), overload_lead=self._settings.overload_lead
        )
        return next(each for each in left if each.name == name)

    def _all_failed(self, failures: list[tuple[str, ProviderError]]) -> ProviderError:
        told = "\n".join(f"{name}: {error.message}" for name, error in failures)
        last = failures[-1][1]
        return ProviderError(
            f"every backend of {self._name} failed:\n{told}",
            kind=last.kind,
            status=last.status,
            retry_after_s=last.retry_after_s,
        )

    def _keep_probing(self) -> None:
        self._asked_at = self._clock()
        if self._probing is None or self._probing.done():
            self._probing = asyncio.get_running_loop().create_task(self._probe())

    def _probed_until(self) -> float:
        return self._asked_at + self._settings.probe_idle_s

    async def _probe(self) -> None:
        """Probe every backend that may be, until nobody asks the router any more."""
        async with asyncio.TaskGroup() as group:
            members = [each for each in self._members.values() if each.is_probed]
            watches = [group.create_task(each.watch()) for each in members]
            # For a time that moves, not for an event.
            while (left_s := self._probed_until() - self._clock()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(left_s)
            self._probing = None  # so that a request from now on begins anew
            for watch in watches:
                watch.cancel()


class _Member:
    """One backend as the router knows it: its health and its load."""

    def __init__(
        self,
        router: str,
        backend: RoutedProvider,
        settings: RouterSettings,
        clock: Callable[[], float],
    ) -> None:
        provider = backend.provider
        self.provider = provider
        # Tries of its own would only delay the way to the next backend.
        self.asked = provider.without_retries() if isinstance(provider, Retrying) else provider
        self.labels = backend.labels
        self.is_probed = backend.is_probed
        self.running = 0
        self.changed = asyncio.Event()
        self._router = router
        self._settings = settings
        self._clock = clock
        self._health = BackendHealth()
        self._heard_at = clock()

    @property
    def name(self) -> str:
        return self.provider.name()

    def standing(self, conversations: int) -> BackendStanding:
        is_due = not self.is_probed and self._clock() >= self._health.retry_at
        return BackendStanding(
            name=self.name,
            is_up=not self._health.is_down or is_due,
            retry_at=self._health.retry_at,
            running=self.running,
            conversations=conversations,
        )

    def due_in(self) -> float:
        """Return the seconds until it is to be probed."""
        at = self._heard_at + self._settings.probe_interval_s
        return (self._health.retry_at if self._health.is_down else at) - self._clock()

    def note_success(self) -> None:
        self._heard_at = self._clock()
        if self._health.is_down:
            _log.info("provider %s: %s is back", self._router, self.name)
            self._health = BackendHealth()
            self.changed.set()

    def note_failure(self, kind: ProviderErrorKind) -> None:
        before = self._health
        self._health = after_failure(before, now=self._clock(), settings=self._settings)
        if not before.is_down:
            _log.warning("provider %s: %s is down (%s)", self._router, self.name, kind)
            self.changed.set()

    async def check(self) -> "str | ProviderError":
        """Return what its check says; a failure is a value, and both are noted."""
        try:
            answer = await self.asked.check()
        except ClawError as error:
            failure = _as_provider_error(error)
            # A server that answers 404 to the list of models answers: it is there.
            if failure.kind == "http" and not takes_down(failure):
                self.note_success()
            else:
                self.note_failure(failure.kind)
            return failure
        self.note_success()
        return answer

    async def watch(self) -> None:
        """Probe it whenever that is due, until cancelled."""
        while True:
            wait_s = self.due_in()
            if wait_s <= 0:
                await self.probe()
                continue
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.changed.wait()

    async def probe(self) -> None:
        """Check it under the limit of a probe."""
        limit_s = self._settings.probe_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self.check()
        except TimeoutError:
            self.note_failure("timeout")


class _Attempt:
    """One backend's turn; `failure` is set when another one is to be asked."""

    def __init__(self, member: _Member, on_begin: Callable[[], None]) -> None:
        self.failure: ProviderError | None = None
        self._member = member
        self._on_begin = on_begin
        self._is_running = False

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        member = self._member
        if member.labels.model:
            request = msgspec.structs.replace(request, model="")
        has_begun = False
        member.running += 1
        self._is_running = True
        deltas = aiter(member.asked.chat(request))
        try:
            async for delta in deltas:
                if isinstance(delta, Failed):
                    if takes_down(delta.error):
                        member.note_failure(_as_provider_error(delta.error).kind)
                    if not has_begun and moves_on(delta.error):
                        self.failure = _as_provider_error(delta.error)
                        return
                elif not has_begun and not isinstance(delta, ModelLoading):
                    has_begun = True
                    member.note_success()
                    self._on_begin()
                if isinstance(delta, Failed | Finished):
                    self._end()  # before it is handed out: who takes it may never come back
                yield delta
        finally:
            self._end()
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()

    def _end(self) -> None:
        if self._is_running:
            self._is_running = False
            self._member.running -= 1


def _as_provider_error(error: Exception) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    hint = error.hint if isinstance(error, ClawError) else ""
    return ProviderError(str(error), kind="invalid", hint=hint)
