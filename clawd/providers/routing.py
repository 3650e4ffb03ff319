"""Which backend of a router answers: labels, load, prefix affinity, health. Decisions only.

Time is given in seconds of any monotonic clock. `router.py` asks, counts and probes.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec
from typing_extensions import override

from clawd.errors import BusyError, InvalidRequestError, ProviderError, ProviderErrorKind
from clawd.providers.base import ChatRequest

# One prompt that a server answers with 500 must not take every backend down: these alone say that
# the server itself cannot serve.
_UNAVAILABLE = frozenset({502, 503, 504})
# Too many requests, and what Anthropic's servers say when they are overloaded.
_BUSY = frozenset({429, 529})
_UNREACHED: frozenset[ProviderErrorKind] = frozenset({"network", "auth", "timeout"})
_MAX_DOUBLINGS = 32
_MAX_HINT_CHARACTERS = 200


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend says of itself, or what a request asks for; empty says nothing."""

    model: str = ""
    cost: str = ""
    privacy: str = ""
    size: str = ""

    @override
    def __str__(self) -> str:
        given = [f"{name}={value}" for name, value in msgspec.structs.asdict(self).items() if value]
        return ", ".join(given) or "no labels"


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


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Failures in a row, and when the backend is tried again."""

    failures: int = 0
    retry_at: float = 0.0

    @property
    def is_down(self) -> bool:
        """Whether it failed and has not answered since."""
        return self.failures > 0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
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


def wanted_labels(request: ChatRequest) -> Labels:
    """Return what a request asks of its backend: its own model goes before the hint."""
    hints = request.metadata
    return Labels(
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
    names = Labels.__struct_fields__
    for name, value in hints.items():
        if name not in names:
            raise InvalidRequestError(f"there is no hint {name!r}; known: {', '.join(names)}")
        if len(value) > _MAX_HINT_CHARACTERS:
            raise InvalidRequestError(
                f"hint {name} has {len(value)} characters; the limit is {_MAX_HINT_CHARACTERS}"
            )


def meets(labels: Labels, wanted: Labels) -> bool:
    """Tell whether a backend may answer.

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


def choose(standings: Sequence[Standing], *, home: str = "", overload_lead: int = 4) -> str | None:
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
    """Tell whether another backend may answer what this one did not."""
    if isinstance(error, ProviderError) and error.kind == "http":
        return takes_down(error) or error.status in _BUSY
    return takes_down(error) or isinstance(error, BusyError)


def takes_down(error: Exception) -> bool:
    """Tell whether the failure says that the backend cannot serve anybody now."""
    if not isinstance(error, ProviderError):
        return False
    return error.kind in _UNREACHED or (error.kind == "http" and error.status in _UNAVAILABLE)


def after_failure(health: Health, *, now: float, settings: RouterSettings) -> Health:
    """Return the health after a failure; those that failed together count once."""
    if health.is_down and now < health.retry_at:
        return health
    wait_s = settings.backoff_initial_s * 2.0 ** min(health.failures, _MAX_DOUBLINGS)
    return Health(failures=health.failures + 1, retry_at=now + min(wait_s, settings.backoff_max_s))


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


def nobody_meets(router: str, wanted: Labels, backends: Mapping[str, Labels]) -> ProviderError:
    """Return the error for a request that no backend may answer, with what there is."""
    there = "; ".join(f"{name}: {labels}" for name, labels in backends.items())
    return ProviderError(
        f"no backend of {router} carries {wanted}; there are {there}",
        kind="invalid",
        hint="Ask for less, or give a backend these labels in its section of the config.",
    )
