"""Handlers about skills."""

import logging
from pathlib import Path

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.errors import InvalidRequestError
from clawd.service.build import Daemon
from clawd.service.handlers.shared import absolute_path, own_conversation
from clawd.service.handlers.tools import run_tool
from clawd.skills.skill_file import Filling
from clawd.skills.store import Skill
from clawd.tools.base import in_thread
from clawd.wire import skills
from clawd.wire.codec import mirror
from clawd.wire.method import Done
from clawd.wire.references import mentions
from clawd.wire.safe_text import fenced
from clawd.wire.tools import PluginFileLine, RunTool, ToolOutcome

MAX_NAMED_FILES = 20

_log = logging.getLogger(__name__)


async def list_skills(daemon: Daemon, params: skills.ListSkills, _call: Call) -> skills.SkillList:
    """List the skills of the home and of a workspace."""
    workspace = daemon.calls.workspace(params.workspace)
    store = daemon.definitions[params.kind]
    found = await in_thread(lambda: store.found(workspace))
    return skills.SkillList(items=tuple(map(_line, found.items)), left_out=found.left_out)


async def inspect_skill(
    daemon: Daemon, params: skills.InspectSkill, _call: Call
) -> skills.SkillReview:
    """Say what a skill is."""
    if bool(params.path) == bool(params.name):
        raise InvalidRequestError("either a path or a name is wanted")
    store = daemon.definitions[params.kind]
    if params.path:
        source = absolute_path(params.path)
        look = await in_thread(lambda: store.inspect(source))
    else:
        workspace = daemon.calls.workspace(params.workspace)
        look = await in_thread(lambda: store.review(params.name, workspace))
    return mirror(
        skills.SkillReview,
        look.skill.about,
        skill=_line(look.skill),
        files=tuple(
            PluginFileLine(path=each.path, size_bytes=len(each.data), is_program=each.is_program)
            for each in look.tree.files
            if each.data is not None
        ),
        changes=look.changes,
        replaces=look.replaces,
    )


async def add_skill(daemon: Daemon, params: skills.AddSkill, call: Call) -> Done:
    """Copy a skill into the home."""
    source = absolute_path(params.path)
    place = await in_thread(lambda: daemon.definitions["skill"].add(source, digest=params.digest))
    _log.info("skill added", extra=_facts(place, params.digest, call))
    return Done(message=f"{place.name} is added; it lies in {place}")


async def trust_skill(daemon: Daemon, params: skills.TrustSkill, call: Call) -> Done:
    """Trust a workspace's skill as it is, or no longer."""
    workspace, name = daemon.calls.workspace(params.workspace), params.name
    by, digest, store = call.principal.uid, params.digest, daemon.definitions[params.kind]
    if params.revoke:
        place = await in_thread(lambda: store.revoke(name, workspace))
    else:
        place = await in_thread(lambda: store.trust(name, workspace, digest=digest, by=by))
    what = "no longer trusted" if params.revoke else "trusted"
    _log.info("%s %s", params.kind, what, extra=_facts(place, digest, call))
    return Done(message=f"{name} is {what}")


async def fill_command(
    daemon: Daemon, params: skills.FillCommand, call: Call
) -> skills.FilledCommand:
    """Return the message that a command stands for, once its commands of the shell have run."""
    workspace, conversation_id = params.workspace, ""
    if params.conversation_id:
        workspace, conversation_id = await own_conversation(daemon, params.conversation_id, call)
    place = daemon.calls.workspace(workspace)
    store = daemon.definitions["command"]
    # What is filled in is what was judged: one reading, out of which nothing is read again.
    found, _ = await in_thread(lambda: store.read(params.name, place))
    filling = Filling(found.about.body, params.arguments)
    calls = [("shell", {"command": each}) for each in await in_thread(filling.shell_commands)]
    count, files, ran = len(calls), list[str](), list[ToolOutcome]()
    if params.reads:
        files = await in_thread(lambda: _named_files(filling.message([""] * count)[0], place))
        calls += [("file_read", {"path": each}) for each in files]
    if calls and not conversation_id:  # what they bring in of untrusted text counts there
        opened = await daemon.inbox.open(call.principal, workspace=workspace, agent=params.agent)
        conversation_id = opened.record.id
    for tool, arguments in calls:
        request = RunTool(
            name=tool,
            arguments=msgspec.json.encode(arguments).decode(),
            conversation_id=conversation_id,
            interactive=params.interactive,
        )
        ran.append(await run_tool(daemon, request, call))
        if ran[-1].status != "allowed":
            return skills.FilledCommand(conversation_id=conversation_id, ran=tuple(ran))
    printed = [each.output.strip("\n") for each in ran]
    typed, text = await in_thread(lambda: filling.message(printed[:count]))
    held = (
        f"[file {name}]\n{fenced(told)}" for name, told in zip(files, printed[count:], strict=True)
    )
    own = () if found.is_own else (str(found.folder.relative_to(place)),)
    return skills.FilledCommand(
        text="\n\n".join((text, *held)),
        typed=typed,
        files=(*own, *files),
        allowed_tools=found.about.allowed_tools,
        conversation_id=conversation_id,
        ran=tuple(ran),
    )


def _named_files(text: str, workspace: Path) -> list[str]:
    """Return the files of a workspace that a text names with `@`, relative to it, each once.

    Raises:
        InvalidRequestError: they are too many.
    """
    found = dict[str, None]()
    for words in mentions(text):
        for word in words:
            try:
                path = (workspace / word).resolve()
                is_meant = path.is_relative_to(workspace.resolve()) and path.is_file()
            except (OSError, ValueError, RuntimeError):
                continue
            if is_meant:
                found[str(path.relative_to(workspace.resolve()))] = None
                break
    if len(found) > MAX_NAMED_FILES:
        raise InvalidRequestError(
            f"{len(found)} files are too many for one message; at most {MAX_NAMED_FILES}",
            hint="Name a folder instead: the model looks into it with its tools.",
        )
    return list(found)


def _line(skill: Skill) -> skills.SkillLine:
    return mirror(
        skills.SkillLine,
        skill,
        folder=str(skill.folder),
        description=skill.about.description,
        hint=skill.about.hint,
        problems=skill.about.problems,
    )


def _facts(place: Path, digest: str, call: Call) -> dict[str, object]:
    return {"skill": str(place), "digest": digest, "by": call.principal.uid}
