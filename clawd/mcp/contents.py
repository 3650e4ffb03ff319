"""From the result of a call, as it came, to what the model may be given. Pure.

Nothing here raises for what a server sent. What is too large is left out and named.
"""

import base64
import binascii
from typing import Any, Literal

import msgspec

from clawd.mcp.model import Content, RemoteResult
from clawd.mcp.repair import json_problem
from clawd.wire.safe_text import single_line

MAX_BLOCKS = 1_000
MAX_STRUCTURED_DEPTH = 64
_MAX_LABEL = 500


class _Budget:
    """How many bytes of a result may still be taken."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.left = max_bytes

    def text(self, text: str) -> str:
        """Take text, cut where it does not fit."""
        data = text.encode("utf-8", "replace")
        taken = data[: self.left].decode("utf-8", "ignore")
        self.left -= min(len(data), self.left)
        if len(taken.encode()) == len(data):
            return taken
        return f"{taken}\n[cut: the result has more than {self.max_bytes} bytes]"

    def take(self, size: int) -> bool:
        """Take that many bytes, or none."""
        if size > self.left:
            return False
        self.left -= size
        return True


def read_result(result: dict[str, Any], max_bytes: int) -> RemoteResult:
    """Read the result of `tools/call`.

    Args:
        result: the JSON object that the server answered with.
        max_bytes: how much of its content is taken.
    """
    if result.get("resultType") == "input_required":
        return RemoteResult(
            failure="tool dispatch failed: the server asks for more input in the middle of the "
            "call, which is not supported here. Give all of it in the arguments."
        )
    budget = _Budget(max_bytes)
    blocks = result.get("content")
    if blocks is None:
        blocks = []
    if not isinstance(blocks, list):
        blocks = [blocks]
    content = [_block(block, budget) for block in blocks[:MAX_BLOCKS]]
    if len(blocks) > MAX_BLOCKS:
        content.append(_note(f"{len(blocks) - MAX_BLOCKS} more blocks were left out"))
    structured = result.get("structuredContent")
    if problem := _structured_problem(structured, budget):
        structured = None
        content.append(_note(f"structured content was left out: it {problem}"))
    return RemoteResult(
        content=tuple(content), structured=structured, is_error=_is_true(result.get("isError"))
    )


def _structured_problem(structured: Any, budget: _Budget) -> str:
    if structured is None:
        return ""
    if problem := json_problem(structured, MAX_STRUCTURED_DEPTH):
        return problem
    if not budget.take(_size(structured)):
        return f"does not fit into {budget.max_bytes} bytes"
    return ""


def _size(value: Any) -> int:
    """Return about how many bytes a value has as JSON."""
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            size += len(each.encode("utf-8", "replace")) + 2
        elif isinstance(each, dict):
            waiting.extend(each)
            waiting.extend(each.values())
            size += 2 * len(each) + 2
        elif isinstance(each, list):
            waiting.extend(each)
            size += len(each) + 2
        else:
            size += 8
    return size


def _block(block: Any, budget: _Budget) -> Content:
    if not isinstance(block, dict):
        return _note("content that is no object was left out")
    given = block.get("type")
    kind = given if isinstance(given, str) else ""
    if kind == "text" and isinstance(block.get("text"), str):
        return Content(kind="text", text=budget.text(block["text"]))
    if kind in {"image", "audio"}:
        return _blob(block, block.get("data"), kind, budget)
    if kind == "resource" and isinstance(block.get("resource"), dict):
        return _resource(block["resource"], budget)
    if kind == "resource_link" and isinstance(block.get("uri"), str):
        return _labelled("link", block)
    return _note(f"content of the type {_label(kind) or 'unknown'} was left out: it is not known")


def _resource(resource: dict[str, Any], budget: _Budget) -> Content:
    text = resource.get("text")
    if not isinstance(text, str):
        return _blob(resource, resource.get("blob"), "resource", budget)
    data = text.encode("utf-8", "replace")
    if not budget.take(len(data)):
        return _too_large("resource", len(data), budget)
    labelled = _labelled("blob", resource)
    return msgspec.structs.replace(labelled, data=data, mime=labelled.mime or "text/plain")


def _blob(block: dict[str, Any], encoded: Any, what: str, budget: _Budget) -> Content:
    if not isinstance(encoded, str):
        return _note(f"content of the type {what} was left out: it has no data")
    size = len(encoded) * 3 // 4
    if size > budget.left + 2:
        return _too_large(what, size, budget)
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return _note(f"content of the type {what} was left out: its data is no base64")
    if not budget.take(len(data)):
        return _too_large(what, len(data), budget)
    return msgspec.structs.replace(_labelled("blob", block), data=data)


def _too_large(what: str, size: int, budget: _Budget) -> Content:
    return _note(
        f"content of the type {what} with {size} bytes was left out: "
        f"the result has more than {budget.max_bytes} bytes"
    )


def _note(text: str) -> Content:
    return Content(kind="other", text=text)


def _labelled(kind: Literal["blob", "link"], block: dict[str, Any]) -> Content:
    return Content(
        kind=kind,
        mime=_label(block.get("mimeType")),
        uri=_label(block.get("uri")),
        name=_label(block.get("name")),
    )


def _label(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return single_line(value.encode("utf-8", "replace").decode(), _MAX_LABEL)


def _is_true(value: Any) -> bool:
    return value is True or value == "true"
