"""Reading a PDF, page by page: text by pypdf, pictures of pages by PDFium. Runs in the sandbox."""

import base64
import io
from collections.abc import Iterator
from typing import Any

from clawd.tools.readers.picture import encoded

# All pictures of one document, in base64: the answers of a process are bounded.
_MAX_PICTURE_CHARS = 7_000_000


def read(job: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    """Yield `{"pages", "title"}`, then `{"page", "text"}` for each page that is wanted.

    Where none of them has text, `{"page", "picture"}` follows for the first ones of them, JPEG or
    PNG in base64. `{"error": …}` takes the place of what cannot be read.

    Args:
        job: the `ranges` of pages, `max_chars` of all texts, how many `pictures` there may be, and
            the `longest_side` of one in pixels.
        data: the file.
    """
    import pypdf

    try:
        reader = pypdf.PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            yield {"error": "encrypted"}
            return
        count = len(reader.pages)
    except Exception as error:  # noqa: BLE001 - a hostile file breaks pypdf in any way
        yield {"error": f"broken: {_said(error)}"}
        return
    yield {"pages": count, "title": _title(reader)}
    numbers, has_text = [], False
    for answer in _texts(reader, job, count):
        numbers.append(answer["page"])
        has_text = has_text or bool(answer.get("text", "").strip())
        yield answer
    if not has_text:
        yield from _pictures(data, job, numbers)


def _texts(reader: Any, job: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    room = job["max_chars"]
    for first, last in job["ranges"]:
        for number in range(first, min(last, count) + 1):
            try:
                text = reader.pages[number - 1].extract_text()
            except Exception as error:  # noqa: BLE001 - likewise; the next page may be fine
                yield {"page": number, "error": _said(error)}
                continue
            text = text.encode("utf-8", "replace").decode()
            yield {"page": number, "text": text[:room], "length": len(text)}
            room -= len(text)
            if room <= 0:
                return


def _pictures(data: bytes, job: dict[str, Any], numbers: list[int]) -> Iterator[dict[str, Any]]:
    import pypdfium2

    room = _MAX_PICTURE_CHARS
    try:
        document = pypdfium2.PdfDocument(data)
    except Exception:  # noqa: BLE001 - pypdf may take what PDFium does not
        return
    for number in numbers[: job["pictures"]]:
        try:
            page = document[number - 1]
            scale = job["longest_side"] / max(*page.get_size(), 1)
            drawn = page.render(scale=scale).to_pil().convert("RGB")
        except Exception as error:  # noqa: BLE001 - likewise; the next page may be fine
            yield {"page": number, "error": _said(error)}
            continue
        picture = base64.b64encode(encoded(drawn, is_lossy=True)[1]).decode()
        room -= len(picture)
        if room < 0:
            return
        yield {"page": number, "picture": picture}


def _title(reader: Any) -> str:
    try:
        return str(reader.metadata.title or "")[:200] if reader.metadata else ""
    except Exception:  # noqa: BLE001 - a title is nothing to fail for
        return ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:200]
