"""The hosts that a running call wants to reach: judged, asked about, and noted for its receipt.

A host is judged as a call of its own would be, by the same gate: what the config lists, or what
made the tool, is low risk, any other host medium. In a conversation that holds untrusted text every
host that it has not reached before asks, listed or not: its name alone can carry data out. Only a
name that the tool itself was given in full does not, since the call was asked about.
"""

import asyncio
import shlex
from collections.abc import Callable, Iterable
from typing import Any, assert_never

import msgspec

from clawd.security.approvals import ApprovalQuestion, Approvals, Resolution
from clawd.security.policy import Allow, Ask, Deny
from clawd.security.risk import Action, Assessment
from clawd.security.sandbox.egress import Denial, Egress, WayOut
from clawd.security.taint import TaintBook
from clawd.tools.base import ToolResult
from clawd.tools.outcome import CallRequest, CallScope
from clawd.wire.policy import HOST_TOOL, covers_host, this_machine_among
from clawd.wire.safe_text import shortened

MAX_CONVERSATIONS = 10_000
RECEIPT_CHARS = 4_000
COMMAND_SHOWN = 200
_HOSTS_TOLD = 10

_canonical = msgspec.json.Encoder(order="sorted")


class ReachSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How calls reach hosts.

    Attributes:
        egress: the way out; None where there is none.
        is_on: returns whether the config lets anything out.
        listed: returns the hosts that the config grants.
    """

    egress: Egress | None = None
    is_on: Callable[[], bool] = lambda: True
    listed: Callable[[], tuple[str, ...]] = tuple


class Hosts:
    """Judges the hosts of all calls. One of a dispatcher.

    Args:
        settings: the way out and what is listed.
        review: what the gate says to an action.
        may_start: its last word, after a person's.
        approvals: asks people.
        taint: which conversations hold untrusted text.
    """

    def __init__(
        self,
        settings: ReachSettings,
        *,
        review: Callable[[Action], Allow | Ask | Deny],
        may_start: Callable[[Action], Allow | Deny],
        approvals: Approvals,
        taint: TaintBook,
    ) -> None:
        self._settings = settings
        self._review = review
        self._may_start = may_start
        self._approvals = approvals
        self._taint = taint
        self._reached: dict[str, set[str]] = {}

    def reach(
        self,
        action: Action,
        request: CallRequest,
        scope: CallScope,
        resolved: Callable[[Resolution], None],
        granted: tuple[str, ...] = (),
    ) -> "CallHosts | None":
        """Return what a call reaches hosts by; None where nothing may.

        Args:
            action: the call.
            request: the same, as it came.
            scope: for whom it runs.
            resolved: is told how a question ended.
            granted: the hosts of its tool.
        """
        if self._settings.egress is None or not self._settings.is_on():
            return None
        about = shortened(_said(action), COMMAND_SHOWN)
        asking = _Asking(about=about, granted=granted, resolved=resolved)
        return CallHosts(self, self._settings.egress, request, scope, asking)

    def action(
        self,
        host: str,
        request: CallRequest,
        scope: CallScope,
        about: str = "",
        granted: tuple[str, ...] = (),
    ) -> Action:
        """Return what is judged where a call wants to reach a host, `get.example.org:443`."""
        name, _, port = host.rpartition(":")
        conversation = scope.conversation_id
        listed = any(
            covers_host(each, name, int(port)) for each in (*self._settings.listed(), *granted)
        )
        is_new = host not in self._reached.get(conversation, ()) and host not in granted
        asks = is_new and self._taint.is_tainted(conversation)
        assessment = Assessment(
            risk="low" if listed and not asks else "medium",
            reason=f"{about or 'a command'} wants to reach {host}",
            allow_hint=_how_to_allow(host, scope),
        )
        return Action(
            tool=HOST_TOOL,
            arguments=_canonical.encode({"host": host}),
            assessment=assessment,
            conversation_id=conversation,
            call_id=f"{request.id}/{host}",
            principal=scope.principal,
            workspace=scope.workspace,
            outward=asks,
            at_most=scope.at_most,
        )

    async def judge(
        self, action: Action, host: str, scope: CallScope, resolved: Callable[[Resolution], None]
    ) -> tuple[Denial | None, str]:
        """Return why a host may not be reached, or by whose word it may."""
        verdict = self._review(action)
        hint = action.assessment.allow_hint
        match verdict:
            case Allow():
                by = verdict.rule_id or ("config" if action.assessment.risk == "low" else "policy")
            case Deny():
                return Denial(reason=f"{host}: {verdict.reason}", hint=verdict.hint or hint), ""
            case Ask():
                question = ApprovalQuestion(
                    action=action, reason=verdict.reason, tainted_by=verdict.tainted_by
                )
                resolution = await self._approvals.ask(
                    question, deliver=scope.deliver, attendance=scope.attendance
                )
                resolved(resolution)
                last = self._may_start(action)
                if not resolution.granted or isinstance(last, Deny):
                    why = last.reason if isinstance(last, Deny) else resolution.reason
                    return Denial(reason=f"{host} is not granted: {why}", hint=hint), ""
                by = f"{resolution.by} {resolution.answer}".strip()
            case _:
                assert_never(verdict)
        self._note(action.conversation_id, host)
        return None, by

    def _note(self, conversation: str, host: str) -> None:
        if conversation not in self._reached and len(self._reached) >= MAX_CONVERSATIONS:
            del self._reached[next(iter(self._reached))]
        self._reached.setdefault(conversation, set()).add(host)


class _Asking(msgspec.Struct, frozen=True, kw_only=True):
    """About what a host is asked, what the tool was given, and who is told how it ended."""

    about: str
    granted: tuple[str, ...]
    resolved: Callable[[Resolution], None]


class CallHosts:
    """What one call reaches hosts by, and what it reached.

    Attributes:
        way_out: for the sandbox.
    """

    def __init__(
        self, hosts: Hosts, egress: Egress, request: CallRequest, scope: CallScope, asking: _Asking
    ) -> None:
        self.way_out = egress.way_out(self._decide, named=this_machine_among(asking.granted))
        self._hosts = hosts
        self._request = request
        self._scope = scope
        self._about = asking
        self._decided: dict[str, tuple[Denial | None, str]] = {}
        self._asking = asyncio.Lock()

    async def _decide(self, host: str, port: int) -> Denial | None:
        name = f"{host}:{port}"
        async with self._asking:  # a person is asked one thing at a time
            if name not in self._decided:
                asking = self._about
                action = self._hosts.action(
                    name, self._request, self._scope, asking.about, asking.granted
                )
                denial, by = await self._hosts.judge(action, name, self._scope, asking.resolved)
                if by == "config" and any(covers_host(each, host, port) for each in asking.granted):
                    by = "manifest"
                self._decided[name] = denial, by
        return self._decided[name][0]

    def contacted(self) -> str:
        """Return the hosts that were reached, as a receipt lists them.

        Each is `HOST:PORT ADDRESS UP/DOWN BY`, with the bytes that went up and down.
        """
        found = (
            f"{each.name} {each.address} {each.up}/{each.down} {self._decided[each.name][1]}"
            for each in self.way_out.contacts.values()
        )
        return listed(found)

    def refused(self) -> str:
        """Return the hosts that were refused, as a receipt lists them.

        `*` stands for all that came after the proxy was lost.
        """
        return listed(refused_names(self.way_out))

    def told(self, result: ToolResult) -> ToolResult:
        """Return a result with the hosts that were refused told after what was printed.

        Programs hide why a connection failed. What came from a host is untrusted text.
        """
        way = self.way_out
        if not (way.contacts or way.refused or way.losses):
            return result
        facts: dict[str, Any] = {**result.metadata}
        if way.contacts:
            facts["hosts_contacted"] = list(way.contacts)
            facts["untrusted_sources"] = [f"host {name}" for name in way.contacts]
        output = result.output
        if way.losses:
            output = f"{output.rstrip()}\n[{_lost(way)}]".lstrip()
        if way.refused:
            facts["hosts_refused"] = list(way.refused)
            output = f"{output.rstrip()}\n{self._refused_told()}".lstrip()
        return msgspec.structs.replace(result, output=output, metadata=facts)

    def _refused_told(self) -> str:
        refused = list(self.way_out.refused.items())
        lines = [f"[clawd refused a connection: {why}]" for _, why in refused[:_HOSTS_TOLD]]
        if more := len(refused) - _HOSTS_TOLD:
            lines += [f"[and connections to {more} more hosts]"] if more > 0 else []
        denied = [name for name, each in self._decided.items() if each[0] is not None]
        if denied:
            lines.append(f"[a person can allow it: {_how_to_allow(denied[0], self._scope)}]")
        return "\n".join(lines)


def with_hosts(
    result: ToolResult, contacted: tuple[str, ...], refused: dict[str, str]
) -> ToolResult:
    """Return a result with the hosts of a process that outlives its call.

    Args:
        result: of the call.
        contacted: `HOST:PORT ADDRESS UP/DOWN BY` for each that was reached.
        refused: why others were not, by name.
    """
    facts: dict[str, Any] = {**result.metadata}
    output, error = result.output, result.error
    if contacted:
        facts["hosts_contacted"] = [each.partition(" ")[0] for each in contacted]
    if refused:
        facts["hosts_refused"] = list(refused)
        told = [f"[clawd refused a connection: {why}]" for why in list(refused.values())]
        told = told[:_HOSTS_TOLD]
        if result.success:
            output = "\n".join([output.rstrip(), *told]).lstrip()
        else:
            error = "\n".join([error, *told])
    return msgspec.structs.replace(
        result,
        output=output,
        error=error,
        metadata=facts,
        contacted=listed(contacted),
        refused=listed(refused),
    )


def refused_names(way: WayOut) -> list[str]:
    """Return what a way out refused; `*` where its proxy was lost, and so everything after that."""
    return [*way.refused, *(["*"] if way.losses else [])]


def _lost(way: WayOut) -> str:
    return f"the connections of this command were cut, and nothing more led out: {way.problem}"


def _how_to_allow(host: str, scope: CallScope) -> str:
    folder = shlex.quote(str(scope.workspace))
    return f"clawctl policy allow --host {host} --project -C {folder}"


def _said(action: Action) -> str:
    """Return what a call runs, for the question that it raises."""
    given = msgspec.json.decode(action.arguments, type=dict[str, Any])
    command = given.get("command")
    return f"`{command}`" if isinstance(command, str) else action.tool


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them, as many as a receipt has room for."""
    kept: list[str] = []
    everything = list(names)
    for name in everything:
        if sum(map(len, kept)) + 2 * len(kept) + len(name) > RECEIPT_CHARS:
            return ", ".join([*kept, f"and {len(everything) - len(kept)} more"])
        kept.append(name)
    return ", ".join(kept)
