"""The pages for users: all are in the index, links lead somewhere, ports are right."""

import re
from pathlib import Path

from clawd.config.http import HttpSection
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"])
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_GATEWAY = re.compile(r"(?:127\.0\.0\.1|localhost):(\w+)")
# Servers of others in examples: llama.cpp, and a page of one's own.
_OTHERS = {"8080", "3000"}


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", head.lower()) for head in heads)
    return {each.strip().replace(" ", "-") for each in words}


def test_every_page_stands_in_the_index_once() -> None:
    listed = re.findall(
        r"^- \[[^\]]+\]\(([\w-]+\.md)\): .+", (DOCS / "README.md").read_text(), re.M
    )
    assert sorted(listed) == sorted(
        page.name for page in DOCS.glob("*.md") if page.stem != "README"
    )


@each_row("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), f"{target}#{anchor}"


@each_row("page", PAGES, ids=lambda page: page.stem)
def test_the_gateway_has_its_own_port_on_every_page(page: Path) -> None:
    assert HttpSection().port == 8686
    ports = set(_GATEWAY.findall(page.read_text(encoding="utf-8")))
    assert ports <= {"8686", *_OTHERS}
