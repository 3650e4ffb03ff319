"""Long conversations and long lists: a stretch is held, more comes as one scrolls."""

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from clawd.providers.base import Message, ToolCall
from tests.support.home import Home
from tests.support.long_memory import fill, said
from tests.web.conftest import Shown, conversation_of, gateway

pytestmark = [pytest.mark.daemon, pytest.mark.page]

ANSWER = {"text": "You said: {{last_user}}"}
MOST = 260  # rows that a stretch may have, with a page on its way

SCROLL = """([place, words, isDown]) => {
  const list = document.querySelector(place);
  list.scrollTop = isDown ? list.scrollHeight : 0;
  const rows = [...list.querySelectorAll('.message, .line')];
  window.mostRows = Math.max(window.mostRows ?? 0, rows.length);
  return rows.some(row => row.textContent.includes(words));
}"""


# Rows come to their own height as they come near: when three frames have passed without that.
WAIT_FOR_REST = """() => new Promise(done => {
  let calm = 0, last = 0;
  const look = () => {
    const now = document.querySelector('.messages').scrollHeight;
    calm = now === last ? calm + 1 : 0;
    last = now;
    if (calm < 3) requestAnimationFrame(look); else done(true);
  };
  look();
})"""

READ_ROW = """() => {
  const row = document.elementsFromPoint(innerWidth / 2, innerHeight / 2).find(
      each => each.matches('.column > [id]'))
      ?? [...document.querySelectorAll('.column > [id]')].find(
          each => each.getBoundingClientRect().top > innerHeight / 3);
  return [row.id, row.getBoundingClientRect().top];
}"""


def scroll(page: Page, place: str, words: str, *, is_down: bool = False) -> None:
    """Scroll to one end, again and again, until a row has these words."""
    page.wait_for_function(SCROLL, arg=[place, words, is_down], polling=50)


def message(page: Page, number: int) -> Locator:
    """Return the row of a stored message."""
    return page.locator(".message", has_text=f"message {number}.")


def shown_at(shown: Shown, conversation_id: str) -> Page:
    """Open the page with a conversation."""
    shown.page.goto(f"{shown.url}/#{conversation_id}")
    shown.page.wait_for_selector("#field")
    return shown.page


def test_the_newest_messages_come_first_and_all_others_by_scrolling(
    home: Home, shown: Shown
) -> None:
    home.configure(ANSWER, tables=gateway())
    long = fill(home, 2, said(700))
    home.start()
    page = shown_at(shown, long)
    expect(message(page, 699)).to_be_in_viewport()
    assert message(page, 500).count() == 0
    scroll(page, ".messages", "message 0.")
    expect(page.get_by_text("Older messages")).to_have_count(0)
    expect(message(page, 699)).to_have_count(0)
    scroll(page, ".messages", "message 699.", is_down=True)
    expect(page.get_by_text("Newer messages")).to_have_count(0)
    expect(message(page, 0)).to_have_count(0)
    assert page.evaluate("window.mostRows") <= MOST
    order = page.locator(".message .plain, .message .markdown").all_text_contents()
    numbers = [int(text.strip().removeprefix("message ").rstrip(".")) for text in order]
    assert numbers == list(range(numbers[0], 700))


def test_a_message_that_is_read_stays_where_it_is_while_older_ones_come(
    home: Home, shown: Shown
) -> None:
    home.configure(ANSWER, tables=gateway())
    long = fill(home, 1, said(300))
    home.start()
    page = shown_at(shown, long)
    expect(message(page, 299)).to_be_in_viewport()
    held: list[Route] = []
    page.route("**/methods/show_conversation", lambda route: held.append(route))
    first = page.locator(".column > [id]").first.get_attribute("id")
    page.locator(".messages").evaluate("list => { list.scrollTop = 0 }")
    page.wait_for_function(WAIT_FOR_REST)
    row, top = page.evaluate(READ_ROW)
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    page.wait_for_function("id => document.querySelector('.column > [id]').id !== id", arg=first)
    page.wait_for_function(WAIT_FOR_REST)
    moved = page.locator(f"#{row}").evaluate("row => row.getBoundingClientRect().top")
    assert abs(moved - top) < 3


def test_what_a_terminal_says_at_the_end_leaves_one_who_reads_further_up_in_peace(
    home: Home, shown: Shown
) -> None:
    home.configure(ANSWER, tables=gateway())
    long = fill(home, 2, said(500))
    home.start()
    page = shown_at(shown, long)
    expect(message(page, 499)).to_be_in_viewport()
    scroll(page, ".messages", "message 0.")
    expect(page.get_by_text("Newer messages")).to_have_count(1)
    with page.expect_response("**/methods/list_turns"):
        done = home.ctl("agent", "-m", "from a terminal", "--conversation", long)
    assert done.returncode == 0, done.stderr
    expect(page.locator(".pill")).to_contain_text("ready")
    expect(message(page, 0)).to_be_in_viewport()
    expect(page.locator(".message", has_text="from a terminal")).to_have_count(0)
    page.get_by_role("button", name="To the newest").click()
    expect(page.locator(".message.assistant").last).to_contain_text("You said: from a terminal")
    expect(page.locator(".message.assistant").last).to_be_in_viewport()
    scroll(page, ".messages", "message 0.")
    shown.say("and from here")
    expect(page.locator(".message.assistant").last).to_contain_text("You said: and from here")
    expect(page.locator(".message.assistant").last).to_be_in_viewport()
    texts = page.locator(".message.user .plain").all_text_contents()
    assert texts[-2:] == ["from a terminal", "and from here"]


def test_a_turn_goes_on_at_the_end_while_older_messages_are_read(home: Home, shown: Shown) -> None:
    write = {"name": "file_write", "arguments": {"path": "a.txt", "content": "one"}}
    home.configure(
        {"when": "write", "text": "I will.", "tool_calls": [write]},
        {"when": "write", "after": "tool", "text": "It is written."},
        tables=gateway(),
    )
    long = fill(home, 1, said(400))
    home.start()
    page = shown_at(shown, long)
    expect(message(page, 399)).to_be_in_viewport()
    shown.say("write")
    page.locator(".card").wait_for()
    expect(page.locator(".call.waiting")).to_be_in_viewport()
    scroll(page, ".messages", "message 0.")
    expect(page.locator(".call")).to_have_count(0)
    with page.expect_response("**/methods/list_turns"):  # the turn's end is seen
        page.locator(".card").get_by_role("button", name="Once").click()
    expect(page.locator(".pill")).to_contain_text("ready")
    expect(message(page, 0)).to_be_in_viewport()
    scroll(page, ".messages", "It is written.", is_down=True)
    expect(page.locator(".call.allowed")).to_have_count(1)
    expect(page.locator(".message", has_text="It is written.")).to_have_count(1)
    expect(page.locator(".message", has_text="I will.")).to_have_count(1)
    expect(page.locator(".message", has_text="It is written.")).to_be_in_viewport()


def test_a_hit_of_the_search_opens_in_the_middle(home: Home, shown: Shown) -> None:
    home.configure(ANSWER, tables=gateway())
    messages = said(600)
    messages[200] = Message(role="user", content="message 200. A needle in a haystack.")
    long = fill(home, 3, messages)
    home.start()
    page = shown.visit()
    page.get_by_role("searchbox").fill("needle")
    page.locator("nav .line", has_text="needle").click()
    expect(message(page, 200)).to_be_focused()
    expect(message(page, 200)).to_be_in_viewport()
    assert conversation_of(page) == long
    expect(message(page, 599)).to_have_count(0)
    scroll(page, ".messages", "message 599.", is_down=True)
    expect(page.get_by_text("Newer messages")).to_have_count(0)
    page.locator("nav .line", has_text="needle").click()
    expect(message(page, 200)).to_be_in_viewport()
    page.get_by_role("searchbox").fill("CONVERSATION 1")  # of a title
    page.locator("nav .line", has_text="conversation 1.").click()
    expect(page.locator(".top h1")).to_have_text("conversation 1.")
    page.get_by_role("searchbox").fill("no such words anywhere")
    expect(page.locator("nav.side")).to_contain_text("Nothing found.")


def test_results_find_their_calls_across_pages(home: Home, shown: Shown) -> None:
    home.configure(ANSWER, tables=gateway())
    messages = []
    for number in range(50):
        call = ToolCall(id=f"call-{number}", name="time", arguments="{}")
        messages += [
            Message(role="user", content=f"message {number}."),
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content=f"result {number}", tool_call_id=call.id, name="time"),
        ]
        if number % 2:  # seven messages in turn: pages begin at each of them
            messages.append(Message(role="assistant", content="Done."))
    long = fill(home, 1, messages)
    home.start()
    page = shown_at(shown, long)
    expect(message(page, 49)).to_be_in_viewport()
    scroll(page, ".messages", "message 0.")
    expect(page.locator(".call")).to_have_count(50)
    expect(page.locator(".call pre.plain")).to_have_text([f"result {n}" for n in range(50)])


def test_one_of_many_conversations_is_deleted_and_the_list_stays(home: Home, shown: Shown) -> None:
    home.configure(ANSWER, tables=gateway())
    fill(home, 450, said(2))
    home.start()
    page = shown.visit()
    page.on("dialog", lambda dialog: dialog.accept())
    lines = page.locator("nav .line")
    expect(lines.first).to_contain_text("conversation 449.")
    scroll(page, "nav .list", "conversation 0.", is_down=True)
    assert page.evaluate("window.mostRows") < 120
    wanted = page.locator("nav li", has_text="conversation 5.")
    wanted.locator(".line").click()
    expect(wanted.locator(".line")).to_have_attribute("aria-current", "page")
    wanted.get_by_text("Delete").click()
    expect(wanted).to_have_count(0)
    shown.say("a new one")  # the list is loaded anew
    expect(page.locator(".message.assistant")).to_contain_text("a new one")
    expect(page.locator("nav li", has_text="conversation 4.")).to_be_in_viewport()
    expect(page.locator("nav li", has_text="conversation 0.")).to_be_in_viewport()
    scroll(page, "nav .list", "conversation 449.")
    expect(lines.first).to_contain_text("a new one")
