"""Handlers about skills."""

import logging
from pathlib import Path

from clawd.channels.rpc.connection import Call
from clawd.errors import InvalidRequestError
from clawd.service.build import Daemon
from clawd.service.handlers.shared import absolute_path
from clawd.skills.store import Skill
from clawd.tools.base import in_thread
from clawd.wire import skills
from clawd.wire.method import Done
from clawd.wire.tools import PluginFileLine

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
    if params.path:
        source = absolute_path(params.path)
        look = await in_thread(lambda: daemon.definitions["skill"].inspect(source))
    else:
        workspace = daemon.calls.workspace(params.workspace)
        store = daemon.definitions[params.kind]
        look = await in_thread(lambda: store.review(params.name, workspace))
    about = look.skill.about
    return skills.SkillReview(
        skill=_line(look.skill),
        license=about.license,
        compatibility=about.compatibility,
        metadata=about.metadata,
        allowed_tools=about.allowed_tools,
        body=about.body,
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


def _line(skill: Skill) -> skills.SkillLine:
    return skills.SkillLine(
        name=skill.name,
        state=skill.state,
        folder=str(skill.folder),
        is_own=skill.is_own,
        description=skill.about.description,
        digest=skill.digest,
        shadowed_by=skill.shadowed_by,
        problems=skill.about.problems,
    )


def _facts(place: Path, digest: str, call: Call) -> dict[str, object]:
    return {"skill": str(place), "digest": digest, "by": call.principal.uid}
