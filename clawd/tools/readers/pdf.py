"""Reading a PDF, page by page, by pypdf. Runs in the sandbox."""

import io
from collections.abc import Iterator
from typing import Any


def read(job: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    """Yield `{"pages", "title"}`, then `{"page", "text"}` for each page that is wanted.

    `{"error": …}` takes the place of what cannot be read.
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


def _title(reader: Any) -> str:
    try:
        return str(reader.metadata.title or "")[:200] if reader.metadata else ""
    except Exception:  # noqa: BLE001 - a title is nothing to fail for
        return ""


def _said(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:200]
