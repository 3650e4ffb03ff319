"""What a person does on the page, in a real browser against a real daemon."""

import re
import socket
import subprocess
import sys

import pytest
from playwright.sync_api import Browser, FilePayload, expect

from clawd.wire.pictures import MAX_PICTURE_BYTES
from tests.support.chat_server import DONE, HELLO, Answer, ChatServer, in_a_thread, serving
from tests.support.home import Home
from tests.support.pictures import chunk, png
from tests.tools.builtin.test_pdf_extract import encrypted
from tests.tools.builtin.tiny_pdf import tiny_pdf
from tests.web.conftest import Shown, conversation_of, gateway, serious

pytestmark = [pytest.mark.daemon, pytest.mark.page]

WRITE = {
    "when": "write",
    "tool_calls": [
        {"name": "file_write", "arguments": {"path": "hello.txt", "content": "one\ntwo\n"}}
    ],
}
ANSWER = (
    "## A heading\n\nSome **bold** text, `code` and $x^2$.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
)
# A browser that was not asked yet, in the background.
NOTIFICATIONS = """
    window.Notification = class {
        static permission = "default";
        static sent = [];
        static async requestPermission() { return (Notification.permission = "granted"); }
        constructor(title) { Notification.sent.push(title); }
    };
    Object.defineProperty(document, "hidden", { get: () => true });
"""
# Holds an answer back that was made while the promise `held` was there.
HOLD = """
    const real = window.fetch;
    window.fetch = async (...asked) => {
        const answer = await real(...asked);
        if (window.held && String(asked[0]).endsWith("/list_turns")) {
            window.isHeld = true;
            await window.held;
            setTimeout(() => (window.isOver = true), 0);  // when what waited for it has run
        }
        return answer;
    };
"""
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="5">'
    '<script>document.documentElement.setAttribute("width", 9)</script></svg>'
)
# As browsers are where a page came over plain HTTP from another machine.
INSECURE = 'Object.defineProperty(Crypto.prototype, "subtle", { get: () => undefined });'
LONG = {"when": "slowly", "text": "It took a while.", "delay_s": 600}


def test_a_first_visit_a_message_and_a_call_with_its_approval(home: Home, shown: Shown) -> None:
    home.configure(
        WRITE,
        {"when": "write", "after": "tool", "text": "I wrote hello.txt."},
        {"text": ANSWER, "reasoning": "They want a heading."},
        tables=gateway(),
    )
    home.start()
    page = shown.visit()
    shown.say("Show me something")
    answer = page.locator(".message.assistant")
    expect(answer.locator("h4")).to_have_text("A heading")
    expect(answer.locator("strong")).to_have_text("bold")
    expect(answer.locator("td")).to_have_text(["1", "2"])
    expect(answer.locator("math")).to_have_count(1)
    expect(answer.locator(".reasoning")).not_to_have_attribute("open", "")
    answer.locator(".reasoning summary").click()
    expect(answer.locator(".reasoning")).to_contain_text("They want a heading.")
    assert not (home.workspace / "hello.txt").exists()
    shown.say("Now write a file")
    card = page.locator(".card")
    expect(card.locator(".diff .line.plus")).to_have_text(["1+one", "2+two"])
    expect(page).to_have_title("(1) clawd")
    page.keyboard.press("o")
    expect(page.locator(".call.allowed summary")).to_contain_text("file_write")
    expect(page.locator(".message.assistant").last).to_contain_text("I wrote hello.txt.")
    assert (home.workspace / "hello.txt").read_text() == "one\ntwo\n"
    expect(page).to_have_title("clawd")
    expect(page.locator(".metrics")).to_contain_text("tok")
    page.locator(".touched summary").click()
    expect(page.locator(".touched li")).to_contain_text(re.compile("hello.txt.*new.*file_write"))
    page.get_by_role("button", name="Changes hello.txt").click()
    expect(page.locator(".touched .diff .line.plus")).to_have_text(["1+one", "2+two"])
    page.locator(".call summary").click()
    page.locator(".call button", has_text="Receipt").click()
    expect(page.locator(".timeline > li.allowed")).to_contain_text("file_write")
    expect(page.locator(".opened")).to_contain_text("hello.txt")
    page.get_by_text("Verify in this browser").click()
    expect(page.locator(".chain .good")).to_contain_text("The chain is whole")
    assert all(url.startswith("blob:") for url in shown.elsewhere())


def test_a_turn_plans_first_and_works_after_a_yes_in_the_mode_that_is_chosen(
    home: Home, shown: Shown
) -> None:
    write = WRITE["tool_calls"][0]
    step = {"name": "plan", "arguments": {"action": "add", "text": "write *hello.txt*"}}
    done = {"name": "plan", "arguments": {"action": "update", "id": "1", "status": "done"}}
    home.configure(
        {"tool_calls": [write, step]},
        {"text": "I write hello.txt."},
        {"text": "I write it at once."},
        {"tool_calls": [write, done]},
        {"text": "Written."},
        tables=gateway(),
    )
    home.start()
    page = shown.visit()
    page.get_by_label("Plan first").check()
    shown.say("Write a file")
    asked = page.locator(".asked")
    expect(asked).to_contain_text("Work on this plan?")
    expect(page.locator(".call.denied summary")).to_contain_text("file_write")
    expect(page.locator("details.plan", has_text="hello.txt")).to_have_count(1)
    page.reload()  # the question waits
    asked.get_by_label("Answer").fill("at once")
    page.keyboard.press("Enter")
    expect(page.locator(".message.assistant").last).to_contain_text("I write it at once.")
    expect(asked).to_contain_text("Work on this plan?")
    assert not (home.workspace / "hello.txt").exists()
    assert not serious(page)
    asked.get_by_role("button", name="edits", exact=True).click()
    expect(page.locator(".message.assistant").last).to_contain_text("Written.")
    assert (home.workspace / "hello.txt").read_text() == "one\ntwo\n"
    assert page.locator(".card").count() == 0  # the mode that was chosen asks no more
    expect(
        page.locator("details.plan input[type=checkbox]:checked, details.plan li.done")
    ).to_have_count(1)


def test_the_config_names_the_page_and_its_field(home: Home, shown: Shown) -> None:
    icon = home.workspace / "icon.svg"
    icon.write_text(ICON)
    named = [
        'page_title = "<b>My</b> agent"',
        'page_placeholder = "Ask me"',
        f'page_icon = "{icon}"',
    ]
    home.configure(tables=gateway(*named))
    home.start()
    page = shown.visit()
    expect(page).to_have_title("<b>My</b> agent")
    expect(page.locator("h1")).to_have_text("<b>My</b> agent")
    expect(page.locator("#field")).to_have_attribute("placeholder", "Ask me")
    drawn = "image => image.decode().then(() => [image.naturalWidth, image.naturalHeight])"
    assert page.locator("header img").evaluate(drawn) == [7, 5]
    # Opened by itself, where a script in it would run as a page of the gateway, it runs nothing.
    tab = shown.context.new_page()
    tab.goto(f"{shown.url}/page/icon.svg")
    expect(tab.locator("svg")).to_have_attribute("width", "7")


def test_without_cryptography_the_page_says_why_it_cannot_verify_and_what_to_do(
    home: Home, shown: Shown
) -> None:
    home.configure(tables=gateway())
    home.start()
    shown.page.add_init_script(INSECURE)
    page = shown.visit()
    page.locator(".tab", has_text="Receipts").click()
    expect(page.locator(".chain .notice")).to_contain_text("clawctl receipt verify")
    expect(page.get_by_text("Verify in this browser")).to_be_disabled()
    assert not serious(page)


def test_the_chain_must_go_through_a_head_that_was_kept_elsewhere(home: Home, shown: Shown) -> None:
    home.configure(tables=gateway())
    home.start()
    for name in ("one", "two"):
        assert home.ctl("tool", "run", "file_read", "--json", f'{{"path": "{name}"}}').returncode
    page = shown.visit()
    page.locator(".tab", has_text="Receipts").click()
    verify, kept = page.get_by_text("Verify in this browser"), page.get_by_label("Head kept")
    verify.click()
    expect(page.locator(".chain .good")).to_contain_text("2 · signed")
    head = page.locator(".chain .mono.break").inner_text().split()[-1]
    kept.fill(head)
    verify.click()
    expect(page.locator(".chain .good")).to_contain_text("The chain is whole")
    kept.fill(f"2:{'0' * 64}")
    verify.click()
    expect(page.locator(".chain .wrong")).to_contain_text("The chain is broken")
    kept.fill("a head")
    verify.click()
    expect(page.locator(".bar.red")).to_contain_text("SEQ:HASH")
    assert not serious(page)


def test_a_denied_call_runs_nothing(home: Home, shown: Shown) -> None:
    after = {"when": "write", "after": "tool", "text": "Then not."}
    home.configure(WRITE, after, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("write it")
    page.locator(".card").wait_for()
    page.keyboard.press("n")
    expect(page.locator(".call.denied")).to_have_count(1)
    expect(page.locator(".message.assistant")).to_contain_text("Then not.")
    assert not (home.workspace / "hello.txt").exists()


def test_a_notification_comes_where_it_was_asked_for(home: Home, shown: Shown) -> None:
    home.configure(WRITE, tables=gateway())
    home.start()
    shown.page.add_init_script(NOTIFICATIONS)
    page = shown.visit()
    page.get_by_role("button", name="Approvals").click()
    page.get_by_role("button", name="Notify me").click()
    expect(page.get_by_role("button", name="Notify me")).to_have_count(0)
    shown.say("write it")
    page.locator(".card").wait_for()
    assert page.evaluate("Notification.sent") == ["Approvals: file_write"]


def test_keys_of_the_tray_are_letters_while_somebody_writes(home: Home, shown: Shown) -> None:
    home.configure(WRITE, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("write it")
    page.fill("#field", "x")
    page.locator(".card").wait_for()
    page.locator("#field").press("End")
    page.keyboard.type("oncp")
    expect(page.locator("#field")).to_have_value("xoncp")
    expect(page.locator(".card")).to_have_count(1)


def test_a_turn_is_stopped_and_a_reload_keeps_what_was_typed(home: Home, shown: Shown) -> None:
    home.configure(LONG, {"text": "Hello."}, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("hi")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    shown.say("slowly please")
    page.fill("#field", "half a thought")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".pill")).to_contain_text("ready")
    expect(page.locator(".notice.error")).to_contain_text("cancelled")
    page.locator(".message.user", has_text="slowly").get_by_text("Edit and send again").click()
    page.locator(".message.user textarea").fill("hi again")
    page.locator(".message.user").get_by_text("Send", exact=True).click()
    expect(page.locator(".message.assistant")).to_have_count(2)
    page.reload()
    expect(page.locator("#field")).to_have_value("half a thought")
    expect(page.locator(".message.user")).to_have_count(2)


def test_a_turn_that_ends_while_the_page_reloads_is_over(home: Home, shown: Shown) -> None:
    home.configure(LONG, {"text": "Hello."}, tables=gateway())
    home.start()
    shown.page.add_init_script(HOLD)
    page = shown.visit()
    shown.say("hi")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    shown.say("slowly")
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    page.evaluate("() => { window.held = new Promise(go => { window.release = go; }) }")
    page.locator(".side .here .line").click()  # it loads anew; the list names the turn
    page.wait_for_function("() => window.isHeld")
    stop.click()
    expect(page.locator(".notice.error")).to_have_count(1)
    expect(page.locator(".pill")).to_contain_text("ready")
    page.evaluate("() => { window.release(); delete window.held }")
    page.wait_for_function("() => window.isOver")
    expect(page.locator(".pill")).to_contain_text("ready")
    expect(stop).to_have_count(0)


def test_going_on_from_an_answer_and_asking_otherwise_make_copies(home: Home, shown: Shown) -> None:
    home.configure({"text": "You said: {{last_user}}"}, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("first")
    expect(page.locator(".message.assistant")).to_contain_text("You said: first")
    shown.say("second")
    expect(page.locator(".message.assistant").last).to_contain_text("You said: second")
    whole = conversation_of(page)
    page.locator(".message.user").last.get_by_text("Edit and send again").click()
    page.locator(".message.user textarea").fill("third")
    page.locator(".message.user").get_by_text("Send", exact=True).click()
    expect(page.locator(".message.assistant").last).to_contain_text("You said: third")
    expect(page.locator(".message.user")).to_have_count(2)
    assert conversation_of(page) != whole
    page.locator(".message.assistant").first.get_by_text("Continue from here in a copy").click()
    expect(page.locator(".message.user")).to_have_count(1)
    expect(page.locator("nav .line")).to_have_count(3)


def test_files_are_attached_and_their_text_arrives(home: Home, shown: Shown) -> None:
    home.configure({"text": "{{last_user}}"}, tables=gateway())
    home.start()
    page = shown.visit()
    files: list[FilePayload] = [
        {"name": "a.md", "mimeType": "text/markdown", "buffer": b"```\nfenced\n```\n"}
    ]
    page.set_input_files("input[type=file]", files)
    expect(page.locator(".files li")).to_contain_text("a.md")
    shown.say("what is in it?")
    expect(page.locator(".message.user")).to_contain_text("a.md:\n````\n```\nfenced")


def test_a_new_conversation_may_work_in_another_folder(home: Home, shown: Shown) -> None:
    other = home.workspace.parent / "other"
    other.mkdir()
    home.configure({"text": "Hello."}, tables=gateway())
    home.start()
    page = shown.visit()
    page.get_by_label("Folder").fill(str(other))
    shown.say("hi")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    expect(page.locator("nav .line")).to_contain_text("other")
    expect(page.get_by_label("Folder")).to_have_count(0)
    page.get_by_role("button", name="New conversation").click()
    page.get_by_label("Folder").fill(str(other / "none"))
    shown.say("lost words")
    expect(page.locator(".bar.red")).to_contain_text("none")
    expect(page.locator("#field")).to_have_value("lost words")


def test_pictures_are_attached_looked_at_and_sent(home: Home, shown: Shown) -> None:
    home.configure({"text": "{{pictures}}"}, tables=gateway())
    home.start()
    page = shown.visit()
    files: list[FilePayload] = [
        {"name": "photo.png", "mimeType": "image/png", "buffer": png(60, 40)},
        {"name": "a.bin", "mimeType": "", "buffer": b"\0\0"},
    ]
    page.set_input_files("input[type=file]", files)
    expect(page.locator(".bar.red")).to_contain_text("a.bin is neither text nor a PDF or a picture")
    expect(page.locator(".files li")).to_have_count(1)
    thumbnail = page.locator(".files img")
    expect(thumbnail).to_have_js_property("naturalWidth", 60)
    assert (thumbnail.get_attribute("src") or "").startswith(f"blob:{shown.url}")
    shown.say("what is it?")
    expect(page.locator(".message.assistant")).to_contain_text("60x40")
    expect(page.locator(".message.user .pictures")).to_contain_text("PNG 60 × 40")
    expect(page.locator(".message.user img")).to_have_js_property("naturalWidth", 60)
    expect(page.locator(".files li")).to_have_count(0)
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator("nav .line")).to_have_count(2)
    expect(page.locator(".message.assistant")).to_contain_text("60x40")
    page.reload()
    expect(page.locator(".message.user .pictures")).to_contain_text("PNG 60 × 40")
    expect(page.locator(".message.user img")).to_have_count(0)
    expect(page.get_by_role("button", name="Answer again")).to_have_count(0)  # it has no files
    assert not serious(page)


def test_what_fits_no_request_is_refused_by_its_key_and_20_mb_fit_a_larger_one(
    home: Home, shown: Shown
) -> None:
    home.configure({"text": "{{pictures}}"}, tables=gateway("max_body_bytes = 29_000_000"))
    home.start()
    page = shown.visit()
    small = png(60, 40)
    at = len(small) - len(chunk(b"IEND", b""))
    room = MAX_PICTURE_BYTES - len(small) - len(chunk(b"clWd", b""))

    def padded(length: int) -> FilePayload:
        data = small[:at] + chunk(b"clWd", bytes(length)) + small[at:]
        return {"name": "large.png", "mimeType": "image/png", "buffer": data}

    page.set_input_files("input[type=file]", padded(room))
    expect(page.locator(".files li")).to_contain_text("large.png")
    shown.say("what is it?")
    expect(page.locator(".message.assistant")).to_contain_text("60x40")
    page.set_input_files("input[type=file]", padded(room + 2_000_000))
    expect(page.locator(".files li")).to_have_count(1)
    shown.say("and this?")
    expect(page.locator(".bar.red")).to_contain_text("29 MB (max_body_bytes in [channels.http])")
    expect(page.locator("#field")).to_have_value("and this?")


def test_a_pdf_is_attached_and_its_text_arrives(home: Home, shown: Shown) -> None:
    home.configure({"text": "{{last_user}}"}, tables=gateway() + "\n[web]\nmax_pdf_pages = 1\n")
    home.start()
    page = shown.visit()
    paper: FilePayload = {
        "name": "paper.pdf",
        "mimeType": "application/pdf",
        "buffer": tiny_pdf(["first words", "second words"]),
    }
    page.set_input_files("input[type=file]", paper)
    expect(page.locator(".files li")).to_contain_text("paper.pdf")
    shown.say("what is in it?")
    expect(page.locator(".message.assistant")).to_contain_text("first words")
    left_out = page.locator(".notice", has_text="of paper.pdf pages 2 are left out")
    expect(left_out).to_be_visible()
    expect(page.locator(".message.user")).to_contain_text("paper.pdf")
    expect(page.locator(".message.user .plain")).to_have_text("what is in it?")
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator("nav .line")).to_have_count(2)
    expect(page.locator(".message.assistant")).to_contain_text("first words")
    page.reload()
    expect(page.locator(".message.user .plain")).to_contain_text("first words")
    expect(page.get_by_role("button", name="Answer again")).to_have_count(0)  # it has no file
    assert not serious(page)


def test_a_file_that_cannot_be_read_is_told_and_nothing_that_was_typed_is_lost(
    home: Home, shown: Shown
) -> None:
    home.configure({"text": "Hello."}, tables=gateway())
    home.start()
    page = shown.visit()
    files: dict[str, tuple[str, bytes, str]] = {
        "rubbish.pdf": ("application/pdf", b"%PDF-1.7\nrubbish", "rubbish.pdf"),
        "locked.pdf": ("application/pdf", encrypted("secret"), "opens only with a password"),
        "photo.png": ("image/png", b"no picture at all", "PNG"),
        "drawing.bmp": ("image/bmp", b"BM\0\0", "neither text nor a PDF or a picture"),
    }
    bar, field = page.locator(".bar.red"), page.locator("#field")
    for name, (kind, data, said) in files.items():
        typed = f"what is in {name}?"
        page.fill("#field", typed)
        page.set_input_files("input[type=file]", {"name": name, "mimeType": kind, "buffer": data})
        if name != "drawing.bmp":  # which is not even attached
            expect(page.locator(".files li")).to_have_count(1)
            page.press("#field", "Enter")
        expect(bar).to_contain_text(said)
        expect(field).to_have_value(typed)
        expect(page.locator(".message")).to_have_count(0)
        bar.get_by_role("button").click()
        if name != "drawing.bmp":
            page.reload()  # what was typed survives that, too
            expect(field).to_have_value(typed)
            page.locator(".pill.idle").wait_for()
    page.press("#field", "Enter")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")


def test_the_emergency_stop_is_set_and_cleared(home: Home, shown: Shown) -> None:
    home.configure(LONG, {"text": "Hello."}, tables=gateway())
    home.start()
    page = shown.visit()
    page.on("dialog", lambda dialog: dialog.accept())
    shown.say("slowly please")
    page.get_by_role("button", name="Emergency stop").click()
    # The turn may have begun its next request just then: that is refused in a bar of its own.
    bar = page.locator(".bar.red", has_text="nothing runs")
    expect(bar).to_contain_text("The emergency stop is set")
    assert home.json("estop", "--status")["is_set"]
    page.get_by_text("Clear it").click()
    expect(bar).to_have_count(0)
    assert not home.json("estop", "--status")["is_set"]


def test_two_tabs_and_a_terminal_share_a_conversation(home: Home, shown: Shown) -> None:
    home.configure({"text": "You said: {{last_user}}"}, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("from the first tab")
    expect(page.locator(".message.assistant")).to_have_count(1)
    other = shown.open()
    other.goto(page.url)
    expect(other.locator(".message.assistant")).to_contain_text("from the first tab")
    done = home.ctl("agent", "-m", "from a terminal", "--conversation", conversation_of(page))
    assert done.returncode == 0, done.stderr
    for tab in (page, other):
        expect(tab.locator(".message.user").last).to_contain_text("from a terminal")
        expect(tab.locator(".message.assistant").last).to_contain_text("You said: from a terminal")
    shown.say("from the second tab", other)
    expect(page.locator(".message.assistant").last).to_contain_text("from the second tab")
    expect(page.locator(".message.user")).to_have_count(3)


def test_on_a_phone_what_is_chosen_beside_a_message_takes_one_row(home: Home, shown: Shown) -> None:
    home.configure({"text": "Hello."}, tables=gateway())
    home.start()
    page = shown.visit()
    page.set_viewport_size({"width": 360, "height": 640})
    composer = page.locator(".composer").bounding_box()
    assert composer
    assert composer["height"] < 640 / 5
    assert composer["width"] <= 360
    page.get_by_label("Folder").fill("/srv")  # it is still reached
    expect(page.get_by_label("Folder")).to_be_in_viewport()


def test_what_a_server_does_not_count_is_not_displayed_as_zero(home: Home, shown: Shown) -> None:
    with in_a_thread(serving(ChatServer(Answer(pieces=(*HELLO[:4], DONE))))) as url:
        server = (
            f'[providers.models.far]\nkind = "openai-compatible"\nbase_url = "{url}"\nmodel = "m"\n'
        )
        home.configure(tables=f"{server}{gateway()}", provider="far")
        home.start()
        page = shown.visit()
        shown.say("hi")
        answer = page.locator(".message.assistant")
        expect(answer.locator("footer")).to_be_visible()
        expect(answer).to_contain_text("Hello")
        expect(page.locator(".metrics")).to_contain_text(" s")
        for place in (answer.locator("footer"), page.locator(".metrics")):
            assert not re.search(r"\b0(\.0)? tok|ctx 0", place.text_content() or "")


def test_a_turn_that_a_terminal_began_says_so_and_counts_survive_a_reload(
    home: Home, shown: Shown
) -> None:
    home.configure(LONG, {"text": "Hello."}, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("hi")
    footer = page.locator(".message.assistant footer")
    expect(footer).to_contain_text("tok")
    told = footer.text_content()
    page.reload()
    expect(footer).to_have_text(str(told))
    command = ("-m", "clawctl", "agent", "-m", "slowly", "--conversation", conversation_of(page))
    with subprocess.Popen(
        [sys.executable, *command],
        env=home.environ,
        cwd=home.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as terminal:
        expect(page.locator(".pill")).to_contain_text("terminal")
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.locator(".pill")).to_contain_text("ready")
        terminal.wait()


def test_several_conversations_are_open_and_the_list_groups_them_by_folder(
    home: Home, shown: Shown
) -> None:
    elsewhere = home.workspace / "elsewhere"
    elsewhere.mkdir()
    home.configure(LONG, {"text": "You said: {{last_user}}"}, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("first")
    expect(page.locator(".message.assistant")).to_contain_text("You said: first")
    first = conversation_of(page)
    page.get_by_role("button", name="By folder").click()
    expect(page.locator(".side .folder")).to_have_count(1)
    page.get_by_role("button", name="+ New conversation").click()
    page.get_by_label("Folder").fill(str(elsewhere))
    page.keyboard.press("Tab")
    shown.say("second")
    expect(page.locator(".message.assistant")).to_contain_text("You said: second")
    folders = page.locator(".side .folder .title")
    expect(folders).to_have_text(["▾ elsewhere 1", "▾ project 1"])
    strip = page.locator(".strip .open")
    expect(strip).to_have_count(2)
    shown.say("slowly")
    expect(page.locator(".pill")).not_to_contain_text("ready")
    strip.first.locator("button").first.click()
    expect(page.locator(".message.assistant")).to_contain_text("You said: first")
    assert conversation_of(page) == first
    expect(strip.last.locator(".dot")).to_have_count(1)  # the other one goes on
    assert not serious(page)
    folders.first.click()
    expect(page.locator(".side .line .title", has_text="second")).to_have_count(0)
    page.reload()
    expect(strip).to_have_count(2)
    expect(folders).to_have_count(2)
    strip.last.locator("button").last.click()
    expect(page.locator(".strip")).to_have_count(0)
    assert conversation_of(page) == first
    page.locator(".side .folder").last.get_by_role("button", name="New conversation").click()
    expect(page.get_by_label("Folder")).to_have_value(str(home.workspace))


def test_the_page_goes_on_after_a_restart_of_the_daemon(home: Home, shown: Shown) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tables = gateway().replace("port = 0", f"port = {port}")
    home.configure(LONG, {"text": "You said: {{last_user}}"}, tables=tables)
    home.start()
    page = shown.visit()
    shown.say("hello")
    expect(page.locator(".message.assistant")).to_contain_text("You said: hello")
    shown.say("slowly please")
    expect(page.locator(".pill")).not_to_contain_text("ready")
    home.kill()
    expect(page.locator(".bar:not(.red)")).to_contain_text("does not answer")
    home.start()
    expect(page.locator(".bar:not(.red)")).to_have_count(0)
    expect(page.locator(".pill")).to_contain_text("ready")
    shown.say("hello again")
    expect(page.locator(".message.assistant").last).to_contain_text("You said: hello again")
    expect(page.locator(".message.user").first).to_contain_text("hello")


def test_once_there_is_a_key_the_page_asks_for_one(home: Home, shown: Shown) -> None:
    home.configure({"text": "Hello."}, tables=gateway())
    home.start()
    key = home.ctl("key", "create", "--scope", "chat,tools,admin").stdout.strip()
    page = shown.visit()
    page.fill(".lock input", "clawd_wrong_key")
    page.press(".lock input", "Enter")
    page.locator(".lock input:not([value])").wait_for()
    page.fill(".lock input", key)
    page.press(".lock input", "Enter")
    page.locator("#field").wait_for()
    shown.say("hi")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    page.reload()
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")


def test_a_one_time_link_logs_a_browser_in_and_no_second_one(
    home: Home, shown: Shown, browser: Browser
) -> None:
    home.configure({"text": "Hello."}, tables=gateway())
    home.start()
    home.ctl("key", "create")  # from now on the page asks for a key
    link = home.ctl("page").stdout.strip()
    secret = link.partition("#login=")[2]
    page = shown.page
    page.goto(link)
    page.locator("#field").wait_for()
    assert (page.url, secret in str(shown.requests[1:])) == (f"{shown.url}/", False)
    shown.say("hi")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    page.reload()
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    other = Shown(home, browser)
    other.page.goto(link)
    expect(other.page.locator(".lock")).to_contain_text("was used already")
    assert "login" not in other.page.url
    other.page.fill(".lock input", home.ctl("page").stdout)  # pasted whole
    other.page.press(".lock input", "Enter")
    other.page.locator("#field").wait_for()
    assert not serious(other.page)
    other.close()
    assert secret not in home.log()


@pytest.mark.parametrize("width", [360, 1200, 2560])
def test_it_fits_and_nothing_stands_in_the_way_of_anybody(
    home: Home, shown: Shown, width: int
) -> None:
    home.configure(
        WRITE,
        {"when": "write", "after": "tool", "text": "Done."},
        {"text": ANSWER},
        tables=gateway(),
    )
    home.start()
    page = shown.visit()
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if width == 1200 else "light")
    shown.say("Show me something")
    page.locator(".message.assistant footer").wait_for()
    shown.say("write")
    page.locator(".card").wait_for()
    found = serious(page)
    page.keyboard.press("o")
    expect(page.locator(".tray")).to_have_count(0)
    for tab in ("Chat", "Receipts", "Machine"):
        page.locator(".tab", has_text=tab).click()
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) <= 0, tab
        found += serious(page)
    assert not found, found


def test_the_keyboard_alone_is_enough(home: Home, shown: Shown) -> None:
    home.configure(WRITE, {"when": "write", "after": "tool", "text": "Done."}, tables=gateway())
    home.start()
    page = shown.visit()
    page.keyboard.type("write")  # the field has the focus
    page.keyboard.press("Enter")
    page.locator(".card").wait_for()
    page.keyboard.press("o")
    expect(page.locator(".message.assistant")).to_contain_text("Done.")
    page.evaluate("document.body.focus()")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "String(document.activeElement.textContent || document.activeElement.ariaLabel)"
                ".trim()"
            )
        )
    for name in ("Receipts", "Machine", "Emergency stop", "Send", "+ New conversation"):
        assert name in reached, name


def test_a_command_of_the_workspace_is_offered_trusted_filled_and_sent(
    home: Home, shown: Shown
) -> None:
    home.configure({"text": "Done."}, tables=gateway())
    home.start()
    place = home.workspace / ".claude" / "commands"
    place.mkdir(parents=True)
    (place / "review.md").write_text(
        "---\ndescription: Reviews a folder.\nargument-hint: FOLDER\n"
        "allowed-tools: file_list\n---\n"
        "Review $1:\n!`echo -- $1`\n"
    )
    page = shown.visit()
    page.locator("#field").press_sequentially("/re")
    commands = page.locator(".commands")
    expect(commands).to_contain_text("clawctl skill trust review --kind command")
    expect(commands.get_by_role("button")).to_be_disabled()
    assert serious(page) == []
    shown.say("/review src")
    expect(page.locator(".bar.red")).to_contain_text("untrusted")
    expect(page.locator("#field")).to_have_value("/review src")
    assert page.locator(".message").count() == 0
    assert home.ctl("skill", "trust", "review", "--kind", "command", "--yes").returncode == 0
    page.fill("#field", "/r")
    expect(commands).to_contain_text("Reviews a folder.")
    commands.get_by_role("button").click()
    expect(page.locator("#field")).to_have_value("/review ")
    expect(commands).to_have_count(0)
    shown.say("/review 'a;id'")
    expect(page.locator(".message.user")).to_contain_text("Review a;id:\n-- a;id")
    expect(page.locator(".message.assistant")).to_have_count(1)
    assert [(r["tool"], r["status"]) for r in home.receipt_lines()] == [("shell", "allowed")]
    assert home.receipt_lines()[0]["conversation_id"] == conversation_of(page)
    shown.say("/nothing here")
    # Buttons stand beside it as soon as the answer is whole.
    expect(page.locator(".message.user").last).to_contain_text("/nothing here")
    expect(page.locator(".message.assistant")).to_have_count(2)
    (place / "review.md").write_text("Review $1:\n!`chmod 777 $1`\n")
    assert home.ctl("skill", "trust", "review", "--kind", "command", "--yes").returncode == 0
    shown.say("/review x")
    page.locator(".card").get_by_role("button", name="Deny").click()
    expect(page.locator(".bar.red")).to_contain_text("nothing was sent")
    expect(page.locator(".message.user")).to_have_count(2)
