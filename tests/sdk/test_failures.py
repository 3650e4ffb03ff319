"""Failures of the socket are the errors that they were on the other side."""

import inspect

from clawd import errors
from clawd.channels.rpc.connection import failure_of
from clawd.errors import BusyError, ClawError, ConfigError, ProviderError, RateLimitError
from clawd.sdk.client import error_of
from clawd.wire.codec import Failure
from tests.support.rows import each_row

PLAIN = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ClawError)
    and kind not in {ConfigError, BusyError, RateLimitError, ProviderError}
]
ALL: list[ClawError] = [
    *(kind("what", hint="do", data={"n": 1}) for kind in PLAIN),
    ConfigError("what", hint="do", problems=("one", "two")),
    BusyError("what", hint="do", retry_after_s=2.5),
    RateLimitError("what", hint="do", retry_after_s=2.5),
    ProviderError("what", hint="do", kind="http", status=503),
]


@each_row("error", ALL, ids=lambda error: type(error).__name__)
def test_every_error_comes_back_as_itself(error: ClawError) -> None:
    back = error_of(failure_of(1, error))
    assert type(back) is type(error)
    assert vars(back) == vars(error)


def test_a_code_of_its_own_and_one_that_nobody_knows_stay() -> None:
    back = error_of(failure_of(1, ClawError("x", code="already_running", hint="y")))
    assert (type(back), back.code, back.message, back.hint) == (
        ClawError,
        "already_running",
        "x",
        "y",
    )


@each_row("data", [None, {}, {"kind": 7, "status": "x", "retry_after_s": "soon"}])
@each_row("code", ["busy", "provider", "config_invalid"])
def test_facts_that_are_missing_or_none_are_made_up_for(code: str, data: object) -> None:
    back = error_of(Failure(id=1, code=code, message="x", data=data))  # type: ignore[arg-type]
    assert (back.code, back.message) == (code, "x")
