"""What the Tab key offers in the editor."""

import re
from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from typing_extensions import override

from clawctl.repl.offering import MENTION, Known, offers
from clawd.wire.safe_text import visible_line

ABOUT_COLUMNS = 60


def is_naming(document: Document) -> bool:
    """Tell whether a command or a file is being named: then the menu opens by itself."""
    before = document.text_before_cursor
    return bool(re.match(r"/[a-z]*$", before)) or MENTION.search(before) is not None


class LineCompleter(Completer):
    """Completes a message; it may ask the daemon, so it runs beside the editor."""

    def __init__(self, known: Known) -> None:
        self._known = known

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        for offer in offers(document.text_before_cursor, self._known):
            yield Completion(
                offer.text,
                start_position=-offer.typed,
                display=offer.shown or None,
                display_meta=visible_line(offer.about, ABOUT_COLUMNS),
            )
