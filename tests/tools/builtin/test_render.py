"""render: pages of Markdown and Mermaid diagrams, as files of the conversation."""

import json
import re
import time
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

from clawd.errors import ClawError, InvalidRequestError
from clawd.memory.rows import Conversation
from clawd.memory.store import Memory
from clawd.tools.builtin.render import (
    MAX_DIAGRAM_CHARACTERS,
    MAX_LEVELS,
    MAX_SOURCE_BYTES,
    diagram,
    page,
)
from clawd.tools.offer import Offer
from clawd.tools.outcome import CallRequest
from clawd.tools.preparing import Resolver
from clawd.tools.registry import Registry
from clawd.tools.session_files import SessionAccess
from tests.tools.builtin.conftest import Bench

OWNER = 1000
TAGS = frozenset(
    (
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "a", "em", "strong"),
        *("s", "code", "pre", "ul", "ol", "li", "blockquote", "hr", "br"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    )
)


class Seen(HTMLParser):
    """What a browser would find: tags, attributes, links and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs if tag != "meta"}
        self.links += [value or "" for name, value in attrs if name == "href"]

    @override
    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
async def memory(tmp_path: Path, bench: Bench) -> AsyncIterator[Memory]:
    opened = await Memory.open(tmp_path / "memory.sqlite")
    await opened.conversations.create(Conversation(id="c1", owner=OWNER, workspace="/w"))
    bench.changes["sessions"] = SessionAccess(store=opened.session_files, room_bytes=2_000)
    yield opened
    await opened.close()


async def kept(memory: Memory, name: str) -> tuple[str, str]:
    file, data = await memory.session_files.load("c1", name, owner=OWNER)
    return file.mime, data.decode()


async def test_m9_markdown_becomes_a_page_and_a_diagram_is_kept_as_it_is(
    bench: Bench, memory: Memory
) -> None:
    table = "|a|b|\n|-:|:-:|\n|1|~~2~~|"
    done = await bench.call("render", source=f"# Title\n\n*One* `two`\n\n{table}", name="r.html")
    mime, text = await kept(memory, "r.html")
    assert done.success
    assert mime == "text/html"
    assert done.output == f"rendered to file+session://r.html (text/html, {len(text)} B)"
    assert "<h1>Title</h1>\n<p><em>One</em> <code>two</code></p>" in text
    assert '<th class="right">a</th>\n<th class="center">b</th>' in text
    assert "<title>r</title>" in text
    assert "<s>2</s>" in text
    for name, source, wanted, written in (
        ("", "x", "render-1.html", "<p>x</p>"),
        ("notes", "x", "notes.html", "<p>x</p>"),
        ("file+session://a.html", "x", "a.html", "<p>x</p>"),
        ("r.html", "again", "r.html", "<p>again</p>"),
        ("flow.mmd", "graph TD\n  A-->B\n", "flow.mmd", "graph TD\n  A-->B\n"),
    ):
        done = await bench.call("render", source=source, name=name)
        assert done.metadata["name"] == wanted
        assert written in (await kept(memory, wanted))[1]
    done = await bench.call("render", source="```mermaid\npie\n```", format="mermaid")
    assert done.metadata["name"] == "render-2.mmd"
    assert await kept(memory, "render-2.mmd") == ("text/vnd.mermaid", "pie\n")
    assert list(bench.workspace.iterdir()) == []


def test_m9_no_markup_of_the_source_becomes_markup_of_the_page() -> None:
    hostile = (
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onclick=x>b</b> <!-- c --> <![CDATA[x]]> <?php x ?>",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "`<script>`",
        '```x"onload="y<script>\n</code></pre><script>x</script>\n```',
        '[x](https://e.example/"onclick="alert(1))',
        '[x](https://e.example "t\\"onclick=\\"alert")',
        "![x](https://e.example/track.png)",
        "![x][y]\n\n[y]: https://e.example/track.png",
        "|<script>|\n|-|\n|<img src=x>|",
        '<https://e.example/"><script>x</script>>',
        "</body></html><script>x</script>",
        "<style>@import 'https://e.example'</style>",
    )
    for source in hostile:
        seen = Seen(page(source, '</title><script>"'))
        assert seen.tags <= TAGS, source
        assert seen.attributes <= {"href", "title", "class"}, source
    assert "alert(1)" in Seen(page(hostile[0])).text, "it is shown, not dropped"
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page("x"))
    sources = "default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]{44}'"
    assert re.fullmatch(f"{sources}; base-uri 'none'; form-action 'none'", policy)


def test_m9_only_links_to_the_web_and_to_mail_stay() -> None:
    good = ("https://e.example/a?b=c#d", "http://e.example", "mailto:a@e.example", "HTTPS://E.X/")
    bad = (
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "javascript&#58;alert(1)",
        "&#x6A;avascript:alert(1)",
        "javascript&colon;alert(1)",
        "data:text/html,x",
        "data:image/png;base64,xx",
        "vbscript:x",
        "file:///etc/passwd",
        "blob:https://e.example/x",
        "//e.example/x",
        "/etc/passwd",
        "a.html",
        "#x",
        "https:e.example",
        "vscode://x",
    )
    forms = ("[x]({})", "[x](<{}>)", "![x]({})", "[x][y]\n\n[y]: {}", "<{}>")
    wrong = [
        (form, url)
        for form in forms
        for url in (*good, *bad)
        if bool(Seen(page(form.format(url))).links) is not (url in good)
    ]
    assert wrong == []


async def test_m9_what_is_too_long_or_of_a_bad_name_is_refused_and_kept_nowhere(
    bench: Bench, memory: Memory
) -> None:
    long = "graph TD\n" + "A-->B\n" * (MAX_DIAGRAM_CHARACTERS // 6)
    refused = {
        f"the source has {MAX_SOURCE_BYTES + 2} bytes": {
            "source": "é" * (MAX_SOURCE_BYTES // 2 + 1)
        },
        "the page would have": {"source": "&" * (MAX_SOURCE_BYTES - 1)},
        f"nested in {MAX_LEVELS} levels": {"source": "> " * 60 + "lost"},
        "the diagram has": {"source": long, "format": "mermaid"},
        "begins no Mermaid diagram": {"source": "# Title", "name": "x.mmd"},
        "is no name": {"source": "x", "name": "../x"},
        "the name has 105 characters": {"source": "x", "name": "n" * 100},
    }
    for why, arguments in refused.items():
        with pytest.raises(ClawError) as caught:
            await bench.call("render", **arguments)
        assert why in caught.value.message
        assert caught.value.hint or "at most" in caught.value.message
    assert await memory.session_files.list("c1", owner=OWNER) == ()
    bench.changes.clear()
    with pytest.raises(InvalidRequestError, match="outside of one"):
        await bench.call("render", source="x")


def test_m9_markdown_is_nested_as_deep_as_it_may_be_without_a_loss() -> None:
    for levels in range(MAX_LEVELS - 4, MAX_LEVELS + 4):
        try:
            made = page("> " * levels + "kept")
        except InvalidRequestError:
            assert levels > MAX_LEVELS - 2
        else:
            assert "kept" in made, levels


def test_m9_markdown_that_takes_too_long_is_given_up() -> None:
    for slow in ("[" * 260_000, "> " * 18 + "a\n" * 100_000):
        begun = time.thread_time()
        with pytest.raises(InvalidRequestError, match=r"takes longer than 0\.1 s"):
            page(slow, limit_s=0.1)
        assert time.thread_time() - begun < 3


def test_m9_a_diagram_is_of_a_kind_that_mermaid_knows() -> None:
    good = (
        "graph TD\nA-->B",
        "graph\nA-->B",
        "flowchart LR; A-->B",
        "flowchart-elk TD\nA",
        "sequenceDiagram\nA->>B: x",
        "classDiagram-v2\nclass A",
        "stateDiagram-v2\n[*] --> A",
        "pie title Pets",
        "C4Context\ntitle x",
        "xychart-beta\nline [1]",
        "\n\n  gantt\n title x",
        "---\ntitle: x\n---\ngitGraph\ncommit",
        "%% a comment\n%%{init: {\n'theme': 'dark'}\n}%%\nmindmap\n  a",
        "```mermaid\ntimeline\n```\n",
    )
    bad = (
        "",
        "A-->B",
        "Graph TD",
        "graphs TD",
        "graph-v3x TD",
        "pie-chart",
        "---\ngraph TD\n",
        "%% graph TD",
        "%%{init: graph TD",
        "%%{\n" * 12_000 + "graph TD",
        "<script>x</script>",
        "```python\npie\n```",
    )
    assert [each for each in good if not diagram(each).endswith("\n")] == []
    for each in bad:
        with pytest.raises(InvalidRequestError, match="begins with one of flowchart, graph"):
            diagram(each)


def test_m9_the_source_reaches_the_tool_to_the_letter_whatever_it_is_called(bench: Bench) -> None:
    tool = bench.tool("render")
    resolver, offer = Resolver(Registry([tool])), Offer([tool])
    for called, argument in (("render", "source"), ("render", "content"), ("mermaid", "code")):
        for source in (
            "    indented code\n",
            "`code`",
            '"quoted"',
            "```mermaid\npie\n```",
            "\n# x",
        ):
            raw = json.dumps({argument: source})
            request = CallRequest(id="k1", tool=called, arguments=raw, by_model=True)
            assert resolver.resolve(request, offer).arguments() == {"source": source}
