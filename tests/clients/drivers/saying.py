"""What every driver shares: it runs its cases one by one and prints what each saw as a JSON line.

A driver runs in the environment of its client, which has neither clawd nor pytest:

    python -m tests.clients.drivers.openai http://127.0.0.1:8686 KEY
    {"case": "chat", "saw": {"text": "…"}}
    {"case": "schema", "raised": {"type": "KeyError", "message": "…", "status": null}}
"""

import asyncio
import json
import sys
import time
import traceback
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

MODEL = "mock"
REAL = "embedded"
SHORT = "short"
ENDLESS = "endless"
VECTORS = "vectors"
WEATHER = "what is the weather in Zürich?"
LONG = "word " * 3000
LIMIT_S = 90.0
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather.",
        "parameters": PARAMETERS,
    },
}
# Bounded everywhere, so that a tiny model comes to the end of it.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "color": {"type": "string", "enum": ["red", "green", "blue"]},
        "likes_it": {"type": "boolean"},
    },
    "required": ["name", "color", "likes_it"],
    "additionalProperties": False,
}

SHOWN = "what is in this picture?"
# 3 by 2 grey pixels, as PNG.
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAAAAAC4HznGAAAAC0lEQVR42mNggAAAAAgAAST8BHIAAAAASUVORK5CYII="
)

# The model alone, without clawd's own tools and system prompt.
ALONE = {"X-Clawd-Inject": "off"}

URL, KEY = [*sys.argv[1:], "", ""][:2]
V1 = f"{URL}/v1"


def weather(city: str) -> str:
    """Answer as the tool does that the drivers bring along."""
    return f"sunny, 21 degrees in {city}"


def refusal(ask: Callable[[], Any]) -> dict[str, Any]:
    """Return how a client tells of a request that was refused."""
    try:
        answer = ask()
    except Exception as error:  # noqa: BLE001 - which class it is, is what is asked
        return _told(error)
    return {"type": "", "message": f"nothing was raised: {answer!r}", "status": None}


def settled() -> dict[str, int]:
    """Wait until nobody but this question is answered; return how many clients had left."""
    found = _until(is_busy=False)
    return {"left": int(sum(v for name, v in found.items() if 'status="499"' in name))}


async def leave_when_asked(asking: Awaitable[Any]) -> None:
    """Wait for an answer under a limit that is over as soon as the daemon works on it.

    Raises:
        TimeoutError: always, as nobody answers.
    """
    async with asyncio.timeout(None) as limit:

        async def leave() -> None:
            await asyncio.to_thread(_until, is_busy=True)
            limit.reschedule(asyncio.get_running_loop().time())

        leaving = asyncio.create_task(leave())
        try:
            await asking
        finally:
            leaving.cancel()


def busy_slots(model: str = ENDLESS) -> int:
    """Return how many slots of a model work."""
    return sum(slot["is_processing"] for slot in json.loads(_got(f"/slots?model={model}")))


def run(*cases: Callable[[], Any]) -> None:
    """Run cases in order, and print a line for each."""
    for case in cases:
        started = time.monotonic()
        line: dict[str, Any] = {"case": case.__name__}
        try:
            line["saw"] = case()
        except Exception as error:  # noqa: BLE001 - the other cases are told all the same
            line["raised"] = _told(error) | {"where": traceback.format_exc()[-2000:]}
        line["took_s"] = round(time.monotonic() - started, 3)
        print(json.dumps(line, ensure_ascii=False, default=repr), flush=True)


def _until(*, is_busy: bool) -> dict[str, float]:
    """Wait until the daemon answers somebody beside this question, or nobody; return its counts."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        lines = _got("/metrics").decode().splitlines()
        numbers = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        found = {name: float(value) for name, _, value in numbers}
        running = sum(v for name, v in found.items() if name.startswith("clawd_model_running"))
        busy = found["clawd_http_requests_open"] - 1 + running + found["clawd_turns_running"]
        if bool(busy) is is_busy:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"busy: {busy}")
        time.sleep(0.02)


def _got(path: str) -> bytes:
    request = urllib.request.Request(URL + path, headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
        body: bytes = response.read()
    return body


def _told(error: BaseException) -> dict[str, Any]:
    status = getattr(error, "status_code", None)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "status": status if isinstance(status, int) and status > 0 else None,
    }
