"""From the name and the arguments of a request to an action that can be judged: tool, values, risk.

Decides nothing about permission, but for tools that are not offered where the call came from.
Everything after this (risk, policy, approvals, receipts, taint, undo) sees the flat tool and its
arguments only, so another spelling of a call can never be judged in another way.
"""

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from clawd.errors import ClawError, InvalidRequestError, NotFoundError
from clawd.security.paths import HeldPaths
from clawd.security.risk import NO_SANDBOX, Action, Assessment
from clawd.tools.arguments import Form, decode_arguments, fit_arguments, read_object, renamed, shape
from clawd.tools.audit import DispatchSettings
from clawd.tools.base import Takes, Tool, ToolContext, is_builtin, traits_of
from clawd.tools.execution import Refused, denied
from clawd.tools.journal import CANONICAL, Entry, Journal
from clawd.tools.naming import (
    ALIASES,
    EITHER,
    NO_CHOICE,
    SEPARATOR,
    choice_of,
    cleaned,
    is_of_a_server,
    near_name,
    nearest,
    words_of,
)
from clawd.tools.offer import MCP_SOURCE, Offer, Offers, example_of
from clawd.tools.outcome import CallRequest, CallScope
from clawd.tools.registry import FACADES, Facade, Registry, flat_name
from clawd.wire.events import ToolProgress

_log = logging.getLogger(__name__)
_ACTION_NAMES = (
    "operation", "op", "verb", "command", "cmd", "mode", "type", "method", "subcommand",
)  # fmt: skip
_SHOWN_NAMES = 40


class PreparedCall(msgspec.Struct, kw_only=True):
    """A call that can be judged and run.

    Attributes:
        held: the paths that it was judged by.
        ask_because: why a hook wants a person asked.
    """

    tool: Tool
    arguments: dict[str, Any]
    action: Action
    context: ToolContext
    offer: Offer
    held: HeldPaths
    ask_because: str = ""


class CallPreparer:
    """Prepares calls.

    Args:
        registry: the tools.
        journal: writes arguments as they are kept.
        settings: the sandbox level in force.
    """

    def __init__(self, registry: Registry, journal: Journal, settings: DispatchSettings) -> None:
        self._registry = registry
        self._journal = journal
        self._settings = settings
        self._resolver = Resolver(registry)
        self._offers = Offers(registry)

    def prepare(
        self, request: CallRequest, scope: CallScope, entry: Entry
    ) -> PreparedCall | Refused:
        """Return the call, or why it cannot be made; the entry learns what it is."""
        offer = self._offers.named(scope.offered, scope.mode)
        try:
            meant = self._resolver.resolve(request, offer)
            tool = meant.tool
            if meant.asked:
                entry.asked = self._journal.name_of(meant.asked)
            entry.tool = tool.name
            if scope.offered is not None and tool.name not in scope.offered:
                reason = f"{tool.name} is not offered on this channel"
                return Refused(kind="denied", reason=reason, text=f"denied: {reason}")
            arguments = meant.arguments()
        except NotFoundError as error:
            return Refused(kind="unknown_tool", reason="unknown tool", text=_told(error))
        except InvalidRequestError as error:
            return Refused(kind="bad_arguments", reason="bad arguments", text=_told(error))
        held = HeldPaths()
        try:
            action = self._action(tool, arguments, request, scope, held)
        except BaseException:
            held.close()
            raise
        entry.arguments = action.arguments
        entry.risk = action.assessment.risk
        if request.doubt and _may_change(tool, action):
            held.close()
            return denied(request.doubt, hint="say it with the exact text")
        if tool.starts_process:
            entry.sandbox = self._settings.sandbox_level
        context = ToolContext(
            conversation_id=scope.conversation_id,
            call_id=request.id,
            principal=scope.principal,
            workspace=scope.workspace,
            receipt_id=entry.id,
            report=lambda text: scope.emit(ToolProgress(call_id=request.id, text=text)),
            emit=scope.emit,
            ask=scope.ask,
            open_page=scope.open_page,
            tools=offer,
            held=held,
            seen=None if request.late is not None else scope.seen,  # a person was shown it
        )
        return PreparedCall(
            tool=tool, arguments=arguments, action=action, context=context, offer=offer, held=held
        )

    def action(self, request: CallRequest, scope: CallScope) -> Action:
        """Return what would be judged, without a trail.

        Raises:
            NotFoundError, InvalidRequestError: no such tool, or arguments that cannot be meant.
        """
        meant = self._resolver.resolve(request, self._offers.named(scope.offered, scope.mode))
        held = HeldPaths()
        try:
            return self._action(meant.tool, meant.arguments(), request, scope, held)
        finally:
            held.close()

    def reading(self, request: CallRequest, scope: CallScope) -> Action | None:
        """Return the action of a call that only looks and asks nobody; None for any other.

        Of a tool that is held to looking at low risk it is that of any call: the risk is to be low.
        """
        try:
            offer = self._offers.named(scope.offered, scope.mode)
            tool = self._resolver.resolve(request, offer).tool
            traits = traits_of(tool)
            is_offered = scope.offered is None or tool.name in scope.offered
            looks = traits.effect == "looks" or traits.looks_at_low
            if not (is_offered and is_builtin(tool) and looks) or traits.asks:
                return None
            return self.action(request, scope)
        except ClawError:
            return None

    def renew(self, prepared: PreparedCall, request: CallRequest, scope: CallScope) -> None:
        """Prepare a call again in place, with the tool and the arguments that were approved.

        What the caller wrote is not read once more: tools may have come that it would mean now.

        Raises:
            NotFoundError, InvalidRequestError: it cannot be meant any more as it was approved.
            ForbiddenError: a path of it leads elsewhere by now.
        """
        tool = self._registry.get(prepared.tool.name)
        arguments = decode_arguments(prepared.arguments, tool.parameters)
        held = prepared.held
        held.check()
        action = msgspec.structs.replace(
            self._action(tool, arguments, request, scope, held), outcome=prepared.action.outcome
        )
        # Whether it is the same program is for the caller to compare, by the digest.
        if action.arguments != prepared.action.arguments:
            raise InvalidRequestError("it takes these arguments in another way now")
        prepared.tool, prepared.arguments, prepared.action = tool, arguments, action

    def edit(
        self,
        prepared: PreparedCall,
        arguments: str,
        request: CallRequest,
        scope: CallScope,
        entry: Entry,
    ) -> None:
        """Give a call other arguments, in place: those that a person wrote, as JSON.

        Raises:
            NotFoundError, InvalidRequestError: it cannot be meant so; it stays as it was.
        """
        try:
            values = msgspec.json.decode(arguments, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequestError(
                f"the edited arguments are no JSON object: {error}"
            ) from error
        tool = self._registry.get(prepared.tool.name)
        decoded = decode_arguments(values, tool.parameters)
        held = HeldPaths()
        try:
            action = self._action(tool, decoded, request, scope, held)
        except BaseException:
            held.close()
            raise
        prepared.held.close()
        prepared.held = held
        prepared.tool, prepared.arguments, prepared.action = tool, decoded, action
        prepared.context = msgspec.structs.replace(prepared.context, held=held, preview=None)
        entry.arguments, entry.risk = action.arguments, action.assessment.risk

    def _action(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        request: CallRequest,
        scope: CallScope,
        held: HeldPaths,
    ) -> Action:
        context = ToolContext(
            conversation_id=scope.conversation_id,
            call_id=request.id,
            principal=scope.principal,
            workspace=scope.workspace,
            held=held,
        )
        try:
            assessment = tool.risk(arguments, context)
        except OSError as error:
            why = f"{tool.name} could not be assessed: {error.strerror}"
            assessment = Assessment(risk="high", blocked=why)
        except Exception as error:  # noqa: BLE001 - a tool that cannot judge itself is blocked
            _log.error("%s could not assess its arguments", tool.name, exc_info=error)
            assessment = Assessment(risk="high", blocked=f"{tool.name} could not be assessed")
        if assessment.blocked and assessment.risk != "high":
            assessment = msgspec.structs.replace(assessment, risk="high")
        outward = tool.outward if assessment.outward is None else assessment.outward
        copies, is_loose = self._settings.copies, False
        if tool.starts_process and self._settings.sandbox_level == NO_SANDBOX:
            outward, is_loose = None, True
        original = copies.original(scope.workspace) if copies and copies.originals else None
        places = held.places
        if copies is not None and original is not None:
            places = tuple(str(copies.meant(Path(each))) for each in places)
            if is_loose:
                why = "without a sandbox nothing holds a command in its copy"
                assessment = Assessment(risk="high", blocked=why)
        return Action(
            tool=tool.name,
            arguments=CANONICAL.encode(arguments),
            assessment=assessment,
            conversation_id=scope.conversation_id,
            call_id=request.id,
            principal=scope.principal,
            workspace=original or scope.workspace,
            places=places,
            environment={"TOOL_HASH": tool.identity[:32]} if tool.identity else {},
            starts_process=tool.starts_process,
            sandbox_level=self._settings.sandbox_level,
            outward=outward,
            at_most=scope.at_most,
            helps=scope.helps,
        )


def _may_change(tool: Tool, action: Action) -> bool:
    """Return whether a call may change, or take away, what is there."""
    return action.assessment.risk != "low" and traits_of(tool).effect not in {"looks", "adds"}


@functools.lru_cache(maxsize=512)
def _form(tool: Tool, *, is_strict: bool = False) -> Form:
    # By another name, arguments that the tool does not take may be what made the difference.
    traits = traits_of(tool)
    only_looks = traits.effect == "looks" and not tool.starts_process
    return Form(
        schema=tool.parameters,
        tool=tool.name,
        example=example_of(tool),
        other_names=traits.other_names,
        documents=traits.documents,
        is_strict=is_strict or not only_looks,
        is_exact=not is_builtin(tool),
        shows_schema=tool.offered_parameters is not None,
    )


def _told(error: ClawError) -> str:
    return f"error: {error.message}" + (f"\n{error.hint}" if error.hint else "")


class Meant(msgspec.Struct, frozen=True, kw_only=True):
    """The tool that a call means, and its arguments before they are fitted to the schema.

    Attributes:
        asked: what was called, where that is not how the tool is called; "" where it is.
    """

    tool: Tool
    raw: str | Mapping[str, Any]
    form: Form
    asked: str = ""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as the tool takes them.

        Raises:
            InvalidRequestError: they cannot be meant; the hint shows a call that could be.
        """
        given = read_object(self.raw, self.form)
        if self.form.actions and not self.form.is_exact:
            given = _with_action(given, self.tool, self.form)
        return fit_arguments(given, self.form)


class Resolver:
    """Finds out what a call means.

    Args:
        registry: the flat tools.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def resolve(self, request: CallRequest, offer: Offer) -> Meant:
        """Return what a call means; the tool may be one that is not offered.

        Raises:
            NotFoundError: no tool can be meant; the hint shows a correct call.
            InvalidRequestError: it is a call of a facade that cannot be meant.
        """
        name = request.tool.strip()
        meant: Meant | None = None
        if (tool := self._registry.find(name)) is not None:
            form = _form(tool, is_strict=name != tool.name)
            meant = Meant(tool=tool, raw=request.arguments, form=form)
        elif why := self._registry.elsewhere.why_missing(name):
            raise NotFoundError(why)
        elif request.by_model:
            meant = self._by_spelling(name, request.arguments, offer)
        elif name in FACADES:
            meant = self._of_facade(name, "", request.arguments, offer, is_exact=True)
        if meant is None:
            raise self._unknown(request.tool, offer)
        if meant.asked or name in (meant.tool.name, *FACADES):
            return meant
        return msgspec.structs.replace(meant, asked=name)

    def _by_spelling(self, written: str, raw: str, offer: Offer) -> Meant | None:
        """Return the tool of clawd that a name can be read as; any other goes by its own name."""
        name = cleaned(written)
        tool = self._registry.find(name)
        if tool is not None and tool.name == name:
            return Meant(tool=tool, raw=raw, form=_form(tool))
        words = words_of(name)
        servers = {alias_of(each) for each in offer.flat} - {""}
        if is_of_a_server(written, servers) or any(words == _bare(each) for each in offer.flat):
            return None
        meant = self._of_builtin(name, words, raw, offer)
        return meant if meant is None or is_builtin(meant.tool) else None

    def _of_builtin(
        self, name: str, words: tuple[str, ...], raw: str, offer: Offer
    ) -> Meant | None:
        tool = self._registry.find(name)
        if words and words[0] in FACADES:
            return self._of_facade(words[0], "_".join(words[1:]), raw, offer)
        if tool is None and (alias := ALIASES.get("_".join(words))) is not None:
            tool = self._registry.find(alias)
        if tool is not None:
            return Meant(tool=tool, raw=raw, form=_form(tool, is_strict=True))
        if (either := EITHER.get("_".join(words))) is not None:
            return self._either(either, raw, offer)
        if (tool := _with_verb(words, offer)) is not None:
            verb = "_".join(words[len(words_of(tool.name)) :])
            form = _form(tool, is_strict=True)
            given = read_object(raw, form)
            plain = {name: value for name, value in form.example.items() if name != "action"}
            shown = msgspec.structs.replace(form, example=plain)
            return Meant(tool=tool, raw=_with_verb_of_name(given, verb, shown), form=form)
        known = _known(offer)
        ranks = {tool.name: traits_of(tool).rank for tool in offer.flat}
        found = self._registry.find(near_name(name, known, ranks) or "")
        if found is None:
            return None
        return Meant(tool=found, raw=raw, form=_form(found, is_strict=True))

    def _either(self, names: tuple[str, ...], raw: str, offer: Offer) -> Meant | None:
        """Return the one tool of several that takes these very arguments."""
        fits = []
        for name in names:
            tool = self._registry.find(name)
            if tool is None or tool.name not in offer.names:
                continue
            meant = Meant(tool=tool, raw=raw, form=_form(tool, is_strict=True))
            try:
                meant.arguments()
            except InvalidRequestError:
                continue
            fits.append(meant)
        return fits[0] if len(fits) == 1 else None

    # --- facades

    def _of_facade(
        self, name: str, verb: str, raw: str, offer: Offer, *, is_exact: bool = False
    ) -> Meant | None:
        """Return the flat tool of a facade's action; with `is_exact` the action must be named."""
        facade = next((each for each in offer.facades if each.name == name), None)
        if facade is None:
            return None
        form = Form(schema=facade.parameters, tool=name, example=_facade_example(facade))
        given = read_object(raw, form)
        named = str(given.get("action", ""))
        if is_exact and named not in facade.members:
            expected = ", ".join(facade.members)
            raise form.refusal(f"argument `action` is {named[:64]!r}, expected one of {expected}")
        said = {flat: action for action, flat in FACADES[name].items()}
        if verb:
            verb = choice_of(verb, facade.members, said)
            if verb is NO_CHOICE:
                return None
            given = _with_verb_of_name(given, verb, _form_of_action(facade, verb, form))
        given = _named_action(given, tuple(FACADES[name]), facade.parameters)
        action = given.pop("action", None)
        if action is None:
            forms = {action: _form(tool, is_strict=True) for action, tool in facade.members.items()}
            fits = _fitting(given, _takes(facade), forms)
            if len(fits) != 1:
                raise _no_action(fits, _form_of_action(facade, fits[0], form) if fits else form)
            action = fits[0]
        chosen = choice_of(action, FACADES[name], said)
        tool = self._registry.find(flat_name(name, chosen)) if chosen is not NO_CHOICE else None
        if tool is None:
            expected = ", ".join(facade.members)
            raise form.refusal(
                f"argument `action` is {str(action)[:64]!r}, expected one of {expected}"
            )
        plain = _form(tool, is_strict=True)
        example = {"action": chosen, **plain.example}
        shown_as = f'{name}(action="{chosen}")'
        form = msgspec.structs.replace(plain, example=example, shown_as=shown_as)
        # A verb that the name says (`fs_read`) stands in the name that was called.
        asked = "" if verb or named == chosen else f"{name}(action={named!r})"
        return Meant(tool=tool, raw=given, form=form, asked=asked)

    # --- what cannot be meant

    def _unknown(self, name: str, offer: Offer) -> NotFoundError:
        """Return an error that names the nearest tools, with a call of the first to copy."""
        spelling = cleaned(name)
        known, server = _known(offer), spelling.partition(SEPARATOR)[0]
        if SEPARATOR in spelling:  # the tools of another server are none that could be meant
            known = {each: tool for each, tool in known.items() if _server_of(tool) == server}
        near = EITHER.get("_".join(words_of(spelling))) or tuple(nearest(spelling, known))
        by_name = {tool.name: tool for tool in offer.flat}
        tools = [by_name[each] for each in near if each in by_name]
        if tools:
            told = f"the nearest are: {', '.join(offer.of(tool.name) for tool in tools)}"
        else:
            names = [tool.name for tool in offer.shown]
            more = ", …" if len(names) > _SHOWN_NAMES else ""
            told = f"the tools are: {', '.join(names[:_SHOWN_NAMES])}{more}"
        if not offer.flat:
            return NotFoundError(f"there is no tool {name[:64]!r}; no tools are offered here")
        called, arguments = _safe_example(tools, offer)
        example = msgspec.json.encode(arguments).decode()
        return NotFoundError(
            f"there is no tool {name[:64]!r}; {told}",
            hint=f"A correct call looks like this: {called} {example}",
        )


def _safe_example(near: list[Tool], offer: Offer) -> tuple[str, dict[str, Any]]:
    """Return a call to show where another tool was wanted: one that does no harm when copied."""
    first = near[0] if near else None
    if first is not None and traits_of(first).rank == 0 and not first.starts_process:
        return offer.example(first)
    if "tool_lookup" in offer.names:
        shown = offer.of(first.name).partition("(")[0] if first is not None else ""
        return "tool_lookup", {"name": shown} if shown else {}
    return offer.example(first or offer.flat[0])


def _known(offer: Offer) -> dict[str, str]:
    """Return every name and word for the tools that are offered."""
    known = {alias: tool for alias, tool in ALIASES.items() if tool in offer.names}
    for tool in offer.flat:
        known |= dict.fromkeys((tool.name, *tool.aliases), tool.name)
    return known


def alias_of(tool: Tool) -> str:
    """Return the alias of the server that a tool is of; "" for any other tool."""
    return tool.source.removeprefix(MCP_SOURCE) if tool.source.startswith(MCP_SOURCE) else ""


def _server_of(name: str) -> str:
    return name.partition(SEPARATOR)[0] if SEPARATOR in name else ""


def _bare(tool: Tool) -> tuple[str, ...]:
    """Return the words of what a server calls its tool; none for a tool of clawd."""
    return () if is_builtin(tool) else words_of(tool.name.partition(SEPARATOR)[2] or tool.name)


def _with_verb(words: tuple[str, ...], offer: Offer) -> Tool | None:
    """Return the tool of clawd with an `action` that a name like `plan_add` means."""
    for tool in filter(is_builtin, offer.flat):
        own = words_of(tool.name)
        verb = "_".join(words[len(own) :])
        choices = _form(tool).actions
        is_begin = bool(verb) and words[: len(own)] == own
        if choices and is_begin and choice_of(verb, choices) is not NO_CHOICE:
            return tool
    return None


def _with_action(given: dict[str, Any], tool: Tool, form: Form) -> dict[str, Any]:
    """Return the arguments of a tool with an `action`, which may have been left out."""
    choices, traits = form.actions, traits_of(tool)
    given = _stood_for(_named_action(given, choices, tool.parameters), choices, traits.stand_ins)
    if given.get("action") is None and "action" in form.required:
        takes = traits.actions
        fits = _fitting(given, takes, dict.fromkeys(takes, form))
        if len(fits) != 1:
            raise _no_action(fits, form)
        return {"action": fits[0]} | given
    return given


def _stood_for(
    given: dict[str, Any], choices: tuple[str, ...], stand_ins: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the arguments with what a word in place of the action means, if nothing denies it."""
    said = given.get("action")
    if not isinstance(said, str) or choice_of(said, choices) is not NO_CHOICE:
        return given
    meant = stand_ins.get(shape(said), {})
    rest = {name: value for name, value in given.items() if name != "action"}
    is_denied = any(rest.get(name, value) != value for name, value in meant.items())
    return rest | dict(meant) if meant and not is_denied else given


def _named_action(
    given: dict[str, Any], choices: tuple[str, ...], schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments with the action under its name, wherever it was written."""
    if given.get("action") is not None:
        return given
    rest = {name: value for name, value in given.items() if name != "action"}
    by_shape = {shape(name): name for name in rest}
    for name in ("action", *_ACTION_NAMES):
        real = by_shape.get(name)
        if real is None or real in schema["properties"]:
            continue
        if name == "action" or choice_of(rest[real], choices) is not NO_CHOICE:
            return {"action": rest.pop(real)} | rest
    if len(rest) == 1:  # {"read": {"path": …}}
        ((name, value),) = rest.items()
        is_inner = isinstance(value, dict) and name in choices
        if is_inner and value.get("action") in (None, "", name):
            return {**value, "action": name}
    return rest


def _with_verb_of_name(given: Mapping[str, Any], verb: str, form: Form) -> dict[str, Any]:
    """Return the arguments with the action that the name says; `action` may only say the same.

    Raises:
        InvalidRequestError: it says another one.
    """
    said = given.get("action")
    if said is not None and said != "" and shape(str(said)) != shape(verb):
        raise form.refusal(f"the name says {verb}, but `action` is {str(said)[:64]!r}")
    return {**given, "action": verb}


def _takes(facade: Facade) -> dict[str, Takes]:
    """Return what each action of a facade must and may have."""
    takes: dict[str, Takes] = {}
    for action, tool in facade.members.items():
        required = tuple(tool.parameters.get("required", ()))
        every = tuple(tool.parameters.get("properties") or {})
        takes[action] = ((required, tuple(name for name in every if name not in required)),)
    return takes


def _fitting(
    given: Mapping[str, Any], takes: Mapping[str, Takes], forms: Mapping[str, Form]
) -> list[str]:
    """Return the actions that these arguments can be for."""
    told = {name: value for name, value in given.items() if value is not None}
    fits = []
    for action, ways in takes.items():
        try:
            names = set(renamed(told, forms[action]))
        except InvalidRequestError:
            continue
        if any(set(must) <= names <= {*must, *may} for must, may in ways):
            fits.append(action)
    return fits


def _no_action(fits: list[str], form: Form) -> InvalidRequestError:
    """Return the error of a call that could be for more than one action, or for none."""
    could = f"; it could be {' or '.join(fits)}" if fits else ""
    choices = form.properties.get("action", {}).get("enum", ())
    listed = ", ".join(map(str, choices))
    return form.refusal(f"missing argument `action`, one of {listed}{could}")


def _form_of_action(facade: Facade, action: str, form: Form) -> Form:
    """Return the form with an example of this action."""
    example = {"action": action, **example_of(facade.members[action])}
    return msgspec.structs.replace(form, example=example)


def _facade_example(facade: Facade) -> dict[str, Any]:
    action, tool = next(iter(facade.members.items()))
    return {"action": action, **example_of(tool)}
