"""Connects what cares for conversations: compression, titles, and what people do with them."""

from clawd.memory.store import Memory
from clawd.runtime.care import Care
from clawd.runtime.compressor import Compressor
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.counting import ModelBook
from clawd.runtime.housekeeping import Housekeeping
from clawd.runtime.inbox import Inbox
from clawd.runtime.session_files import FileSummaries, teller_of_files
from clawd.runtime.summariser import Summariser
from clawd.runtime.titling import Titler
from clawd.security.redact import Redactor
from clawd.service.state import State


def care_for(
    book: ConversationBook,
    memory: Memory,
    state: State,
    redactor: Redactor,
    models: ModelBook,
) -> Care:
    """Return what is done around turns, by the settings in force."""
    summariser = Summariser(redactor.text)
    compressor = Compressor(
        memory.checkpoints,
        memory.conversations,
        summariser=summariser,
        settings=lambda: state.runtime.compression,
        models=models,
    )
    titler = Titler(
        memory.conversations, book, summariser=summariser, titles=lambda: state.runtime.titles
    )
    summaries = FileSummaries(
        memory.session_files,
        book,
        summariser=summariser,
        is_wanted=lambda: state.loaded.config.session_files.summaries == "model",
    )
    memory.session_files.tell = teller_of_files(book)
    return Care(compressor, titler, summaries)


def housekeeping_of(inbox: Inbox, memory: Memory) -> Housekeeping:
    """Return what people do with conversations, in an inbox that is cared for."""
    assert inbox.care is not None
    return Housekeeping(inbox, memory, inbox.care.compressor)
