"""Numbers and stop strings of bodies within what an engine can take; which is more is less."""

from typing import Any

from clawd.channels.http.body import field, invalid

MAX_COUNT = 2**31 - 1
MAX_STOPS = 64
_SEEDS = 2**31


def count_of(body: dict[str, Any], name: str, *, at: str = "") -> int | None:
    """Return a whole number of 1 or more, the largest there is for larger ones; None for none.

    `at` is where the body stands in the request, here and below.

    Raises:
        InvalidRequestError: it is no whole number.
    """
    value = field(body, name, int, 0, at=at)
    return min(value, MAX_COUNT) if value > 0 else None


def seed_of(body: dict[str, Any], *, at: str = "") -> int | None:
    """Return the seed; None where there is none, or a negative one, for a new one each time.

    Raises:
        InvalidRequestError: it is no whole number.
    """
    value = field(body, "seed", int, -1, at=at)
    return value % _SEEDS if value >= 0 else None


def number_of(
    body: dict[str, Any], name: str, *, least: float = 0.0, most: float, at: str = ""
) -> float | None:
    """Return a number between these; None where there is none.

    Raises:
        InvalidRequestError: it is no number, or not between them.
    """
    if body.get(name) is None:
        return None
    value = field(body, name, float, 0.0, at=at)
    if not least <= value <= most:
        raise invalid(
            f"{at}.{name}" if at else name, f"expected a number from {least:g} to {most:g}"
        )
    return value


def stops_of(body: dict[str, Any], name: str, *, at: str = "") -> tuple[str, ...]:
    """Return the stop strings that are not empty.

    Raises:
        InvalidRequestError: they are no list of texts, or too many.
    """
    stops = tuple(stop for stop in field(body, name, list[str], [], at=at) if stop)
    if len(stops) > MAX_STOPS:
        raise invalid(
            f"{at}.{name}" if at else name,
            f"{len(stops)} of them, at most {MAX_STOPS} are watched for",
        )
    return stops
