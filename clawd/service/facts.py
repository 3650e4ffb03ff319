"""What goes with messages besides their text: the sources of facts, connected."""

from pathlib import Path

from clawd.memory.knowledge.store import Knowledge
from clawd.memory.origins import MemoryOrigins
from clawd.memory.store import Memory
from clawd.runtime.agents_md import AgentsMd, AgentsMdSettings
from clawd.runtime.facts import FactSource, SaidOf, WorkspaceMessage
from clawd.runtime.participants import Participants
from clawd.runtime.session_files import SessionFileList
from clawd.security.origins import FileOrigins
from clawd.security.paths import path_rules
from clawd.security.taint import TaintBook
from clawd.service.state import State

_READING_NOTES = frozenset({"knowledge_search", "knowledge_load", "knowledge_list"})


def fact_sources(
    state: State, taint: TaintBook, knowledge: Knowledge, memory: Memory
) -> tuple[FactSource, ...]:
    """Return the sources in the order in which the block tells them."""
    return (
        Participants(),
        SaidOf("memory_vocabulary", knowledge.vocabulary, tools=_READING_NOTES),
        SessionFileList(memory.session_files),
        WorkspaceMessage(lambda: state.runtime.workspace_message),
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
        is_on=runtime.agents_md,
        rules=path_rules(state.policy, workspace=workspace, home=runtime.home),
        roots=tuple(root.resolve() for root in roots),
    )
