"""Fields that bodies of OpenAI's endpoints share: sampling, tools' choice, who a request is for."""

from typing import Any, TypeVar

import msgspec

from clawd.channels.http.body import field, invalid
from clawd.errors import InvalidRequestError
from clawd.providers.base import Sampling

MAX_CHOICES = 16
MAX_STOPS = 64
MAX_TOP_LOGPROBS = 20

_T = TypeVar("_T")
_MAX_INT = 2**31 - 1
_SEEDS = 2**31
_BANNED = -100.0
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "dry_multiplier",
    "dry_base",
    "xtc_probability",
    "xtc_threshold",
)
_COUNTS = ("top_k", "dry_allowed_length")
_NOT_NEGATIVE = ("temperature", "top_p", "min_p", "repeat_penalty")


def read_sampling(body: dict[str, Any], *, limits: tuple[str, ...]) -> Sampling:
    """Return the sampling that a body asks for; what it does not name is left as it is.

    Args:
        body: the request's.
        limits: names of the field that bounds the answer, the first that is given counts.

    Raises:
        InvalidRequestError: a field is of another type or out of range.
    """
    wishes: dict[str, Any] = {name: given(body, name, float) for name in _NUMBERS}
    wishes |= {name: given(body, name, int) for name in _COUNTS}
    wishes["typical_p"] = given(body, "typical_p", float)
    for name in _NOT_NEGATIVE:
        if wishes[name] is not None and wishes[name] < 0:
            raise invalid(name, f"is {wishes[name]}, expected 0 or more")
    return Sampling(
        **wishes,
        dry_last_n=given(body, "dry_penalty_last_n", int),
        dry_breakers=_breakers(body),
        seed=_seed(body),
        max_tokens=_max_tokens(body, limits),
        stop=read_stop(body),
        logit_bias=read_bias(body),
    )


def read_stop(body: dict[str, Any]) -> tuple[str, ...]:
    """Return the texts that end an answer: one, or a list of them."""
    stops = (
        [body["stop"]] if isinstance(body.get("stop"), str) else field(body, "stop", list[str], [])
    )
    if len(stops) > MAX_STOPS:
        raise invalid("stop", f"has {len(stops)} texts, at most {MAX_STOPS} are taken")
    return tuple(stop for stop in stops if stop)


def read_bias(body: dict[str, Any]) -> dict[int, float] | None:
    """Return what is added to the logits, by token id.

    An object from ids to numbers, or llama.cpp's list of pairs; false there bans a token.
    """
    biases = body.get("logit_bias")
    if biases is None:
        return None
    if isinstance(biases, dict):
        pairs = list(biases.items())
    elif isinstance(biases, list) and all(isinstance(p, list) and len(p) == 2 for p in biases):
        pairs = [(token, bias) for token, bias in biases]
    else:
        raise invalid("logit_bias", "expected an object from token ids to numbers")
    return {_token(token): _bias(bias) for token, bias in pairs} or None


def read_choices(body: dict[str, Any]) -> int:
    """Return how many answers are asked for."""
    count = field(body, "n", int, 1)
    if not 1 <= count <= MAX_CHOICES:
        raise invalid("n", f"is {count}, expected 1 to {MAX_CHOICES}")
    return count


def read_metadata(body: dict[str, Any]) -> dict[str, str]:
    """Return the hints for routers among the metadata: what is text."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return {}
    return {
        name: value
        for name, value in metadata.items()
        if isinstance(value, str) and name != "conversation_id"
    }


def given(body: dict[str, Any], name: str, kind: type[_T]) -> _T | None:
    """Return a field; None where it is absent or null.

    Raises:
        InvalidRequestError: it is of another type.
    """
    return None if body.get(name) is None else field(body, name, kind, kind())


def flag(body: dict[str, Any], name: str, *, default: bool = False, at: str = "") -> bool:
    """Return a field that is true or false; `at` is where its holder stands."""
    return field(body, name, bool, default, at=at)


def flags_of(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a field that holds options; null and absent are none."""
    return field(body, name, dict[str, Any], {})


def refuse(body: dict[str, Any], name: str, problem: str, hint: str = "") -> None:
    """Refuse a field that has any value.

    Raises:
        InvalidRequestError: it has.
    """
    if body.get(name) not in (None, "", [], {}, False):
        raise InvalidRequestError(f"{name} {problem}", hint=hint, data={"param": name})


def _max_tokens(body: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        count = given(body, name, int)
        if count is None or count == -1:
            continue
        if count < 1:
            raise invalid(name, f"is {count}, expected at least 1")
        return min(count, _MAX_INT)
    return None


def _seed(body: dict[str, Any]) -> int | None:
    seed = given(body, "seed", int)
    return None if seed is None or seed < 0 else seed % _SEEDS


def _breakers(body: dict[str, Any]) -> tuple[str, ...] | None:
    breakers = given(body, "dry_sequence_breakers", list[str])
    return None if breakers is None else tuple(breakers)


def _token(token: object) -> int:
    if isinstance(token, int) and not isinstance(token, bool) and token >= 0:
        return min(token, _MAX_INT)
    if isinstance(token, str) and token.isascii() and token.isdigit():
        return min(int(token[:10]), _MAX_INT)
    shown = msgspec.json.encode(token).decode()[:40]
    raise invalid("logit_bias", f"{shown} is no token id; POST /tokenize tells the ids of a text")


def _bias(bias: object) -> float:
    if bias is False:
        return _BANNED
    if isinstance(bias, int | float) and not isinstance(bias, bool):
        return max(-1e6, min(1e6, float(bias)))
    raise invalid("logit_bias", "expected numbers")
