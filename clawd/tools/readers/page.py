"""Reading a page: its title, its main text by trafilatura, its links. Runs in the sandbox."""

from collections.abc import Iterator
from typing import Any

from clawd.tools.readers.outline import Outline


def read(job: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    """Yield `{"title", "links"}` and then `{"text", "is_main"}` of a page in UTF-8.

    `is_main` is False when no main text was found and `text` is all that the page shows.
    """
    html = data.decode("utf-8", "replace")
    outline = Outline(job["url"])
    outline.feed(html)
    outline.close()
    yield {"title": outline.title, "links": list(outline.links.items())[: job["max_links"]]}
    # All text first: should the search for the main part meet a limit, there is something.
    everything = outline.text
    limit = job["max_chars"]
    yield {"text": everything[:limit], "length": len(everything), "is_main": False}
    if main := _main_text(html, job["url"]):
        yield {"text": main[:limit], "length": len(main), "is_main": True}


def _main_text(html: str, url: str) -> str:
    import trafilatura

    try:
        found = trafilatura.extract(
            html,
            url=url,
            output_format="markdown",
            include_comments=False,
            include_tables=True,
            favor_recall=True,
        )
    except Exception:  # noqa: BLE001 - whatever a hostile page does to it, there is the other text
        return ""
    return found or ""
