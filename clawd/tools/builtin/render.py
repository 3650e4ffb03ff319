"""The tool `render`: keeps Markdown as a page, or a Mermaid diagram, beside the conversation.

The page stands by itself: it holds no script, fetches nothing, and no markup of the source becomes
markup of the page. Diagrams are kept as they were written, for clients that draw them.
"""

import base64
import hashlib
import re
import time
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from clawd.errors import InvalidRequestError
from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, in_thread, succeeded
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.session_files import SessionFolder
from clawd.wire.references import NAME_LIMIT, SCHEME, check_name, reference
from clawd.wire.safe_text import single_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_SOURCE_BYTES = 256 << 10
MAX_PAGE_BYTES = 1 << 20
# What Mermaid itself draws unless a client says otherwise.
MAX_DIAGRAM_CHARACTERS = 50_000
MAX_LEVELS = 40
# Of the thread's own work, so that a busy machine does not count.
PARSE_LIMIT_S = 5.0

SUFFIXES = {"markdown": ".html", "mermaid": ".mmd"}
DIAGRAMS = (
    *("flowchart", "graph", "sequenceDiagram", "classDiagram", "stateDiagram", "erDiagram"),
    *("journey", "gantt", "pie", "quadrantChart", "requirementDiagram", "gitGraph", "mindmap"),
    *("timeline", "sankey", "xychart", "block", "packet", "kanban", "architecture", "radar"),
    *("treemap", "zenuml", "C4Context", "C4Container", "C4Component", "C4Dynamic", "C4Deployment"),
)

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:48em;margin:2em auto;padding:0 1em}"
    "pre{overflow:auto;padding:1em;background:#8882}code{font-family:monospace}"
    "table{border-collapse:collapse}th,td{border:1px solid #8888;padding:.3em .6em}"
    "blockquote{margin-left:0;padding-left:1em;border-left:3px solid #8888}"
    ".left{text-align:left}.center{text-align:center}.right{text-align:right}"
    ":root{color-scheme:light dark}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_CSP = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
_LINK = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*mermaid[ \t]*")
# A front matter, directives and comments may stand before the kind.
_FRONT = re.compile(r"---[ \t]*\n(?:.*\n)*?---[ \t]*(?:\n|$)")
_BEFORE = re.compile(r"\s*(?:%%\{.*?\}%%|%%(?!\{)[^\n]*(?:\n|$))", re.DOTALL)
_KIND = re.compile(r"\s*([A-Za-z0-9]+)(?:-(?:v2|beta|elk))?(?![\w-])")


class RenderTool(Tool):
    """Makes a session file of Markdown or of a Mermaid diagram."""

    name: ClassVar[str] = "render"
    short: ClassVar[str] = "Keep Markdown as an HTML page, or a Mermaid diagram, for the user."
    description: ClassVar[str] = (
        "Makes a session file. Markdown becomes one HTML page that stands by itself: markup in it "
        "is shown as text, links may be http, https and mailto, and images become links. Mermaid "
        "(format=mermaid) is checked for its kind and kept as it is, for clients that draw it. "
        "The name may be left out; a file of the same name is replaced."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "source": {"type": "string", "description": "The Markdown or Mermaid."},
            "name": {"type": "string", "description": "Of the file, as report.html."},
            "format": {"type": "string", "enum": list(SUFFIXES)},
        },
        "source",
    )
    outward: ClassVar[bool | None] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._sessions = deps.sessions
        self.timeout_s = deps.tool_timeout_s

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="makes a file of the conversation", outward=False)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        source, given = arguments["source"], arguments.get("name", "").strip()
        kind = arguments.get("format") or _kind_by(given)
        size = len(source.encode("utf-8", "replace"))
        if size > MAX_SOURCE_BYTES:
            raise InvalidRequestError(
                f"the source has {size} bytes; at most {MAX_SOURCE_BYTES} are rendered",
                hint="Render it in several parts, each under a name of its own.",
            )
        name = _file_name(given, SUFFIXES[kind]) if given else ""
        text = source.replace("\0", "\ufffd")
        if kind == "mermaid":
            content = diagram(text)
        else:
            content = await in_thread(lambda: page(text, name.removesuffix(".html")))
        folder, data = SessionFolder(self._sessions, context), content.encode("utf-8", "replace")
        if name:
            file = await folder.write(SCHEME + name, data, adds=False)
        else:
            file = await folder.keep(self.name, data, suffix=SUFFIXES[kind])
        told = f"rendered to {reference(file.name)} ({file.mime}, {file.size} B)"
        return succeeded(told, name=file.name, mime=file.mime, bytes=file.size)


def page(source: str, title: str = "", *, limit_s: float = PARSE_LIMIT_S) -> str:
    """Return Markdown as one HTML page.

    Raises:
        InvalidRequestError: it is nested too deeply, takes too long, or the page gets too large.
    """
    # Here, as it is of no use to a daemon in which nobody renders.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_LEVELS})
    parser.enable(["table", "strikethrough"]).disable("image")
    parser.validateLink = _is_link  # type: ignore[method-assign]
    _end_in_time(parser, limit_s)
    tokens = parser.parse(source)
    if any(token.nesting > 0 and token.level >= MAX_LEVELS - 1 for token in tokens):
        # What stands deeper was left out by the parser, without a word.
        raise InvalidRequestError(
            f"the Markdown is nested in {MAX_LEVELS} levels or more",
            hint="Use fewer quotes and lists inside of each other.",
        )
    _name_alignments(tokens)
    body = parser.renderer.render(tokens, parser.options, {})
    made = (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title or 'Page')}</title>\n<style>{_STYLE}</style>\n"
        f"</head>\n<body>\n{body}</body>\n</html>\n"
    )
    size = len(made.encode("utf-8", "replace"))
    if size > MAX_PAGE_BYTES:
        raise InvalidRequestError(
            f"the page would have {size} bytes; the limit is {MAX_PAGE_BYTES}",
            hint="Render it in several parts, each under a name of its own.",
        )
    return made


def diagram(source: str) -> str:
    """Return the source of a Mermaid diagram, without the fence around it.

    Raises:
        InvalidRequestError: it is of no kind that Mermaid knows, or too long to be drawn.
    """
    lines = source.strip().split("\n")
    if (fence := _FENCE.fullmatch(lines[0])) and lines[-1].strip() == fence[1]:
        lines = lines[1:-1]
    text = "\n".join(lines).strip() + "\n"
    if len(text) > MAX_DIAGRAM_CHARACTERS:
        raise InvalidRequestError(
            f"the diagram has {len(text)} characters; Mermaid draws at most "
            f"{MAX_DIAGRAM_CHARACTERS}",
            hint="Make several diagrams of it.",
        )
    at = front.end() if (front := _FRONT.match(text)) else 0
    while before := _BEFORE.match(text, at):
        at = before.end()
    kind = _KIND.match(text, at)
    if kind is None or kind[1] not in DIAGRAMS:
        begin = single_line(text[at:].lstrip()[:60].partition("\n")[0], 60)
        raise InvalidRequestError(
            f"{begin!r} begins no Mermaid diagram; it begins with one of {', '.join(DIAGRAMS)}",
            hint='As in {"source": "flowchart TD\\n  A --> B", "format": "mermaid"}; Markdown '
            'takes {"format": "markdown"}.',
        )
    return text


def _kind_by(name: str) -> str:
    return "mermaid" if name.endswith(SUFFIXES["mermaid"]) else "markdown"


def _file_name(given: str, suffix: str) -> str:
    name = given.removeprefix(SCHEME)
    name = name if name.endswith(suffix) else name + suffix
    if len(name) > NAME_LIMIT:
        raise InvalidRequestError(
            f"the name has {len(name)} characters with its {suffix}; at most {NAME_LIMIT} may be"
        )
    return check_name(name)


def _is_link(url: str) -> bool:
    return _LINK.match(url) is not None


def _end_in_time(parser: "MarkdownIt", limit_s: float) -> None:
    """Let the parser give up once it has worked for so long; must be called in its thread.

    Some sources take far longer than their length says. A rule that matches nothing and is asked
    before all others looks at the clock.
    """
    until = time.thread_time() + limit_s

    def look_at_clock(*_state: Any) -> bool:
        if time.thread_time() > until:
            raise InvalidRequestError(
                f"the Markdown takes longer than {limit_s:g} s to read",
                hint="Use fewer brackets, quotes and lists inside of each other, or several parts.",
            )
        return False

    chains = ["paragraph", "reference", "blockquote", "list", "table"]
    parser.block.ruler.before("table", "clock", look_at_clock, {"alt": chains})
    parser.inline.ruler.before("text", "clock", look_at_clock)


def _name_alignments(tokens: "list[Token]") -> None:
    """Align cells by class: the page allows no styles in attributes."""
    for token in tokens:
        if style := token.attrs.pop("style", ""):
            token.attrs["class"] = str(style).removeprefix("text-align:")
