"""What is told after the daemon was lost in the middle of an answer."""

from clawctl.render import note
from clawctl.repl.host import Host
from clawd.wire.methods import ShowConversation

PAGE = 1_000


def tell_what_is_kept(host: Host) -> bool:
    """Say what of the turn that was cut is stored; False when its message is not, either."""
    asked, answered = _last_exchange(host) if host.conversation_id else ("", "")
    # The daemon may store a block of facts before the words of the person.
    if not host.last_text or not asked.endswith(host.last_text):
        note("● nothing of that turn was kept; your message is in the prompt again")
        return False
    kept = f"{len(answered)} characters of the answer" if answered else "nothing of the answer"
    note(f"● your message and {kept} were kept; /retry asks again")
    return True


def _last_exchange(host: Host) -> tuple[str, str]:
    """Return the last message of the person that is stored, and what was answered to it."""
    asked, answered, cursor = "", "", ""
    while True:
        page = host.call(
            ShowConversation(conversation_id=host.conversation_id, cursor=cursor, limit=PAGE)
        )
        for message in page.messages:
            if message.role == "user":
                asked, answered = message.content, ""
            elif message.role == "assistant":
                answered = message.content or answered
        cursor = page.cursor
        if not cursor:
            return asked, answered
