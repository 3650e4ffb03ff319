"""What goes with messages besides their text: the sources of facts, connected."""

from pathlib import Path

from clawd.memory.knowledge.store import Knowledge
from clawd.memory.store import Memory, MemoryOrigins
from clawd.runtime.compression import ModelBook
from clawd.runtime.compressor import Compressor
from clawd.runtime.context_facts import (
    AgentsMd,
    AgentsMdSettings,
    FactSource,
    Participants,
    SaidOf,
    WorkspaceMessage,
)
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.housekeeping import Housekeeping
from clawd.runtime.inbox import Inbox
from clawd.runtime.session_files import FileSummaries, SessionFilesFact, teller_of_files
from clawd.runtime.summariser import Summariser
from clawd.runtime.turn_hooks import Care, Titler
from clawd.security.paths import path_rules
from clawd.security.redact import Redactor
from clawd.security.taint import FileOrigins, TaintBook
from clawd.service.state import State

# Connects what cares for conversations: compression, titles, and what people do with them.


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
        memory.conversations, book, summariser=summariser, titles=lambda: state.runtime.loop.titles
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


_READING_NOTES = frozenset({"knowledge_search", "knowledge_load", "knowledge_list"})


def fact_sources(
    state: State, taint: TaintBook, knowledge: Knowledge, memory: Memory
) -> tuple[FactSource, ...]:
    """Return the sources in the order in which the block tells them."""
    return (
        Participants(),
        SaidOf("memory_vocabulary", knowledge.vocabulary, tools=_READING_NOTES),
        SessionFilesFact(memory.session_files),
        WorkspaceMessage(lambda: state.runtime.prompt.parts.workspace_message),
        AgentsMd(taint.files, lambda workspace: _agents_md(state, workspace)),
    )


async def taint_of(marks: MemoryOrigins, state: State) -> TaintBook:
    """Return where untrusted text is known to be, with what memory knows of files."""
    files = FileOrigins(marks, patterns=lambda: state.loaded.config.security.untrusted_paths)
    await files.load()
    return TaintBook(files)


def _agents_md(state: State, workspace: Path) -> AgentsMdSettings:
    runtime = state.runtime
    roots = (runtime.workspace, *runtime.workspace_roots)
    return AgentsMdSettings(
        is_on=runtime.prompt.parts.agents_md,
        rules=path_rules(state.policy, workspace=workspace, home=runtime.home),
        roots=tuple(root.resolve() for root in roots),
    )
