"""Methods about skills, and what they report."""

from typing import ClassVar, Literal

import msgspec

from clawd.wire.method import Done, Method
from clawd.wire.tools import PluginFileLine, ToolOutcome

SkillState = Literal["ready", "untrusted", "changed", "broken", "shadowed"]
SkillKind = Literal["skill", "agent", "command"]
"""A folder with a SKILL.md; or a Markdown file: an agent that helpers may be, or a command."""


class SkillProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a skill: the line of SKILL.md, or 0 for the folder, and a sentence."""

    line: int = 0
    text: str


class SkillLine(msgspec.Struct, frozen=True, kw_only=True):
    """One skill.

    Attributes:
        state: a model is offered those that are ready and no others.
        is_own: it is the owner's; a workspace's has to be trusted.
        hint: what may stand behind a command.
        shadowed_by: the folder of the same name that goes before it.
    """

    name: str
    state: SkillState
    folder: str
    is_own: bool
    description: str = ""
    digest: str = ""
    hint: str = ""
    shadowed_by: str = ""
    problems: tuple[SkillProblem, ...] = ()


class SkillList(msgspec.Struct, frozen=True, kw_only=True):
    """The skills of a workspace, and how many entries were too many to be looked at."""

    items: tuple[SkillLine, ...]
    left_out: int = 0


class ListSkills(Method[SkillList], frozen=True, kw_only=True):
    """List those of a kind of the home and of a workspace (empty: the configured one)."""

    workspace: str = ""
    kind: SkillKind = "skill"


class SkillReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a skill is and says; `skill.digest` is what trusting or adding it names.

    `changes` says what differs from what was trusted, or from what adding it would replace.
    """

    skill: SkillLine
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    body: str = ""
    files: tuple[PluginFileLine, ...] = ()
    changes: tuple[str, ...] = ()
    replaces: bool = False


class InspectSkill(Method[SkillReview], frozen=True, kw_only=True):
    """Say what a skill is: one by its name, or one in a folder or archive (`path`, absolute)."""

    admin: ClassVar[bool] = True
    name: str = ""
    path: str = ""
    workspace: str = ""
    kind: SkillKind = "skill"


class AddSkill(Method[Done], frozen=True, kw_only=True):
    """Copy a skill into the home, if its hash is still the one that was inspected."""

    admin: ClassVar[bool] = True
    path: str
    digest: str


class TrustSkill(Method[Done], frozen=True, kw_only=True):
    """Trust a workspace's skill, if its hash is the one that was inspected; or `revoke` that."""

    admin: ClassVar[bool] = True
    name: str
    workspace: str = ""
    kind: SkillKind = "skill"
    digest: str = ""
    revoke: bool = False


class FilledCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The message that a command stands for, and what was run for it.

    Attributes:
        text: the message; empty where a command of the shell did not run to its end, or a file
            was not read: then nothing is to be sent.
        typed: the message without what was printed: its `@file` are the person's, and those of the
            command.
        files: the file of a workspace's command and those that were read for it, which count with
            the message as others do.
        allowed_tools: what narrows the turn.
        conversation_id: where it was run, which the message belongs to; empty where nothing was
            run and none was named.
        ran: what came of each command of the shell, and of each file that was read.
    """

    text: str = ""
    typed: str = ""
    files: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    conversation_id: str = ""
    ran: tuple[ToolOutcome, ...] = ()


class FillCommand(Method[FilledCommand], frozen=True, kw_only=True):
    """Return the message that a command stands for; it is not sent. Streams approvals.

    Its commands of the shell are run through the gate by the tool `shell`, in the conversation: one
    is opened for them, for `agent` in `workspace`, where none is named. With `reads` what the files
    hold that it names with `@` stands below it, each read by the tool `file_read`, likewise: for
    clients that cannot read them.
    """

    streams: ClassVar[bool] = True
    name: str
    arguments: str = ""
    conversation_id: str = ""
    workspace: str = ""
    agent: str = ""
    interactive: bool = False
    reads: bool = False
