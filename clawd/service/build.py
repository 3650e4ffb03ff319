"""The one place that connects the parts of a daemon. Each part gets its collaborators here."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from clawd.config.load import Loaded, load
from clawd.config.secrets import webhook_address
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError, ConfigError
from clawd.mcp.model import RemoteServers
from clawd.memory.blobs import Blobs
from clawd.memory.changes import Changes
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.snapshots import Snapshots
from clawd.memory.store import Memory
from clawd.paths import user_home
from clawd.plugins.loader import PluginPins
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.record import Receipt
from clawd.receipts.verify import find_receipt
from clawd.runtime import session_files
from clawd.runtime.activity import Activity
from clawd.runtime.approval_prompts import PersonAtDoor, Questions
from clawd.runtime.calls import Calls, ToolClients
from clawd.runtime.compressor import Compressor, ModelBook
from clawd.runtime.context_facts import (
    AgentsFact,
    AgentsMd,
    AgentsMdSettings,
    Facts,
    FactSource,
    Participants,
    SaidOf,
    SkillsFact,
    WorkspaceMessage,
)
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.housekeeping import Housekeeping
from clawd.runtime.hub import DaemonEvent, Hub
from clawd.runtime.inbox import Inbox
from clawd.runtime.late_answers import LateAnswers
from clawd.runtime.preparation import Preparation
from clawd.runtime.summariser import Summariser
from clawd.runtime.turn import Turn
from clawd.runtime.turn_hooks import Care, Titler, TurnHooks
from clawd.schedules.delivery import Deliverer, DeliveryMeans
from clawd.schedules.scheduler import JobScheduler, SopWorker, TurnWorker
from clawd.security.approval_rules import JsonRuleStore, RuleBook
from clawd.security.approvals import Approvals
from clawd.security.copies import Copies
from clawd.security.estop import EmergencyStop
from clawd.security.gate import Gate
from clawd.security.keys import KeyBook
from clawd.security.peer import PeerPolicy, principal_of
from clawd.security.policy import ModeBook
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.security.sandbox.egress import Egress
from clawd.security.sandbox.limits import ToolsCgroup, tools_cgroup
from clawd.security.sandbox.neighbours import end_orphans
from clawd.security.sandbox.plan import own_devices
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.security.taint import FileOrigins, TaintBook
from clawd.service import state
from clawd.service.home import LastRun
from clawd.service.mcp import McpTools, make_servers
from clawd.service.metrics import DaemonMetrics, MetricsLog
from clawd.service.receipts import Anchor, check_of, open_receipts, reopen_receipts
from clawd.service.state import (
    LocalModels,
    State,
    engine_of,
)
from clawd.service.toolset import Additions, Toolset
from clawd.service.upkeep import Background, MemoryKeeper, Preloader, problem_of
from clawd.skills.store import AgentStore, CommandStore, SkillStore
from clawd.sop.runner import SopParts, SopRunner
from clawd.sop.steps import StepActor, Trail
from clawd.sop.store import SopStore
from clawd.sop.tools import SopTool
from clawd.tools.audit import DispatchSettings
from clawd.tools.base import Tool
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.dispatch import Dispatcher
from clawd.tools.hooks import Hooks, HookTrail
from clawd.tools.jobs import Jobs
from clawd.tools.journal import Journal
from clawd.tools.pictures import Pictures
from clawd.tools.registry import Registry
from clawd.tools.taint_tracking import TaintTracking
from clawd.wire.events import EstopChanged
from clawd.wire.skills import SkillKind

if TYPE_CHECKING:
    from clawd.service.embedding import MeaningIndex

_log = logging.getLogger(__name__)


async def _load_rules(rules: RuleBook) -> None:
    """Read the standing approvals; where they cannot be read none is in force, which is logged."""
    try:
        await rules.load()
    except ClawError as error:
        _log.warning("standing approvals are not in force: %s", error.message)


_READING_NOTES = frozenset({"knowledge_search", "knowledge_load", "knowledge_list"})


class Daemon:
    """A running daemon: its parts, connected. Made by `build`, ended by `close`.

    Args:
        loaded: its configuration.
        environ: what it sees of the environment.
        owns_process: whether the process is its own; if not, it leaves its cgroup as it is.
        umask: permissions that files do not get which tools make in a workspace.
        servers: reaches MCP servers in another way than its own; None for its own.
    """

    state: State
    memory: Memory
    redactor: Redactor
    keys: KeyBook
    changes: Changes
    copies: Copies
    snapshots: Snapshots
    knowledge: Knowledge
    estop: EmergencyStop
    engine: Engine
    sandbox: Sandbox
    pictures: Pictures
    egress: Egress
    rules: RuleBook
    approvals: Approvals
    journal: Journal
    jobs: Jobs
    hooks: Hooks
    inbox: Inbox
    scheduler: JobScheduler
    deliverer: Deliverer
    late: LateAnswers
    keeper: MemoryKeeper
    mcp: McpTools
    toolset: Toolset
    registry: Registry
    calls: Calls
    definitions: dict[SkillKind, SkillStore]
    sops: SopRunner
    tool_clients: ToolClients
    person: PersonAtDoor
    housekeeping: Housekeeping
    metrics: DaemonMetrics

    def __init__(
        self,
        loaded: Loaded,
        environ: Mapping[str, str],
        *,
        owns_process: bool = True,
        umask: int = 0o077,
        servers: RemoteServers | None = None,
    ) -> None:
        self._environ = environ
        self._owns_process = owns_process
        self._umask = umask
        self._servers = servers
        self._stack = AsyncExitStack()
        self.began_s = time.monotonic()
        self.began_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.last_run = LastRun(loaded.layout.home)
        self.loaded = loaded
        self.shutdown_wanted = asyncio.Event()
        self.gateway_address = ""
        self.needs_no_key: Callable[[], bool] = lambda: False
        self.hub = Hub()
        self.background = Background()
        self.activity = Activity()
        self.chain: ReceiptChain | None = None
        self.anchor: Anchor | None = None
        self.tools_cgroup: ToolsCgroup | None = None
        self._devices = ""
        self.meaning: MeaningIndex | None = None

    async def open(self, redactor: Redactor) -> None:
        """Open everything, lowest first; on failure what was opened is closed again.

        Raises:
            ClawError: a part cannot be had; the message says which and what to do.
        """
        try:
            await self._open(redactor)
        except BaseException:
            await self._stack.aclose()
            raise

    @property
    def models(self) -> LocalModels:
        """The local models, as the configuration in force has them."""
        return LocalModels(self.state.loaded)

    @property
    def problem(self) -> str:
        """Why it cannot do its work; empty while it can."""
        return problem_of(self.chain, self.memory, self.background)

    async def drain(self) -> None:
        """Refuse new turns, give running ones their grace, then cancel them.

        What waits for a person lapses at once: nobody's silence holds up the end.
        """
        self.approvals.close()
        await self.scheduler.stop()
        await self.sops.close()
        await self.inbox.close(grace_s=self.state.loaded.config.limits.shutdown_grace_s)

    async def close(self) -> None:
        """Close everything, highest first."""
        await self._stack.aclose()

    async def _open(self, redactor: Redactor) -> None:
        config, layout = self.loaded.config, self.loaded.layout
        await self.last_run.look(self.loaded, self._stack)
        self.redactor = redactor
        self.memory = await Memory.open(config.memory.path)
        self._stack.push_async_callback(self.memory.close)
        self.keys = KeyBook(self.memory.keys)
        await self.keys.load()
        self.chain, self.anchor = await open_receipts(
            self.loaded, self.memory, self._stack, self.last_run, self.background.watch
        )
        self.estop = EmergencyStop(layout.home)
        self.estop.start()
        self._stack.callback(self.estop.close)
        self.engine = Engine(engine_of(self.loaded))
        self._stack.push_async_callback(self.engine.close)
        self.state = State(self.loaded, self.engine, self._environ)
        self.state.redact = redactor.text
        self._stack.push_async_callback(self.state.close)
        blobs = Blobs(layout.snapshots / "blobs", lambda: state.command_limit_of(self.state.loaded))
        self.changes = await self.memory.changes(
            layout.undo, lambda: state.change_limits_of(self.state.loaded), blobs
        )
        self.copies = Copies(layout.home, lambda: state.hidden_paths_of(self.state.loaded))
        self.snapshots = Snapshots(
            layout.snapshots, blobs, changes=self.changes, copies=self.copies
        )
        self._stack.push_async_callback(self.snapshots.close)
        self.knowledge = Knowledge(lambda: self.state.loaded.config.knowledge)
        self._stack.callback(self.knowledge.close)
        cgroup = await asyncio.to_thread(tools_cgroup) if self._owns_process else None
        if isinstance(cgroup, ToolsCgroup):
            self.tools_cgroup = cgroup
        self._devices = await asyncio.to_thread(own_devices)
        self.sandbox = Sandbox(self._sandbox_settings(self.loaded), registry=self.estop)
        self.pictures = Pictures(self.sandbox)
        self.egress = Egress(lambda: state.network_rules_of(self.state.loaded))
        self._stack.push_async_callback(self.egress.close)
        # This process holds the home's lock: what carries its mark has lost its daemon.
        await asyncio.to_thread(end_orphans, layout.home)
        cut_off = await asyncio.to_thread(self.copies.recover)
        await asyncio.to_thread(self.changes.drop, *cut_off)
        await self.sandbox.probe()
        await self._connect()

    def _stop_work(self, is_set: bool) -> None:  # noqa: FBT001 - the listener's signature
        """End questions, calls, jobs and answers when the emergency stop is set."""
        if not is_set:
            _log.warning("emergency stop cleared")
            self.scheduler.wake()
            self.memory.schedules.to_deliver.set()
            return
        denied = self.approvals.deny_all()
        stopped = self._dispatcher.stop_all() + self.jobs.stop_all("the emergency stop")
        self.inbox.stop_generations()
        _log.warning("emergency stop set", extra={"stopped": stopped, "denied": denied})

    def _report_estop(self, is_set: bool) -> None:  # noqa: FBT001 - the listener's signature
        """Report the emergency stop to all that follow the daemon."""
        self.hub.emit(DaemonEvent(event=EstopChanged(is_set=is_set)))

    async def _taint(self) -> TaintBook:
        """Return what is known of untrusted text."""
        files = FileOrigins(
            self.memory.origins,
            patterns=lambda: self.state.loaded.config.security.untrusted_paths,
            copies=self.copies,
        )
        await files.load()
        return TaintBook(files)

    async def _connect(self) -> None:
        config = self.loaded.config
        taint = await self._taint()
        self.journal = Journal(self.chain, self.memory.ledger, self.redactor)
        store = JsonRuleStore(self.loaded.layout.approval_rules)
        self.rules = rules = RuleBook(store, record=self.journal.record_rule)
        await _load_rules(rules)
        self.approvals = Approvals(
            rules,
            estop=self.estop,
            timeout_s=config.security.approval_timeout_s,
            rule_days=config.security.approval_rule_days,
        )
        modes = ModeBook(lambda: self.state.policy, record=self.journal.record_mode)
        self.registry = registry = await self._tools(taint)
        self.hooks = self._hooks(taint)
        self._dispatcher = dispatcher = Dispatcher(
            registry,
            gate=Gate(
                lambda: self.state.policy, estop=self.estop, taint=taint, rules=rules, modes=modes
            ),
            approvals=self.approvals,
            journal=self.journal,
            taint=taint,
            settings=self._dispatch_settings(),
        )
        self.person = PersonAtDoor(Questions(timeout_s=config.security.approval_timeout_s))
        book = ConversationBook(self.memory, taint, self.hub, modes, self.approvals)
        models = ModelBook()
        turn_hooks = TurnHooks(self.hooks, book)
        self.hub.add_listener(turn_hooks.note)
        self._stack.push_async_callback(turn_hooks.close)
        care = self._care(book, models)
        self.inbox = Inbox(
            book,
            begin=partial(Turn, dispatcher=dispatcher),
            preparation=self._preparation(taint, models),
            settings=lambda: self.state.runtime,
            care=care,
            hooks=turn_hooks,
        )
        self.toolset.helpers.inbox = self.inbox
        self.housekeeping = Housekeeping(self.inbox, self.memory, care.compressor)
        self.late = self._late_answers()
        self.scheduler = self._scheduler()
        self._begin_upkeep(book, rules)
        await self._begin_index()
        await self._begin_notices()
        self.estop.add_listener(self._stop_work)
        self.estop.add_listener(self._report_estop)
        self.hub.add_listener(self.activity.note)
        self._open_to_clients()
        await self.mcp.open(self.state.loaded, self._offer_tools)
        await self.sops.recover()
        await asyncio.to_thread(self.last_run.begin)

    def _preparation(self, taint: TaintBook, models: ModelBook) -> Preparation:
        """Return what settles the provider, the tools and the prompt of a turn."""
        return Preparation(
            self.registry,
            providers=lambda: self.state.providers,
            settings=lambda: self.state.runtime,
            person=self.person,
            facts=Facts(
                taint,
                self._fact_sources(taint),
                tells_date=lambda: self.state.loaded.config.prompt.date,
                skills=SkillsFact(self.definitions["skill"], taint.files),
            ),
            long_messages=session_files.LongMessages(self.memory.session_files, models),
        )

    def _care(self, book: ConversationBook, models: ModelBook) -> Care:
        """Return what is done around turns, by the settings in force."""
        summariser = Summariser(self.redactor.text)
        compressor = Compressor(
            self.memory.checkpoints,
            self.memory.conversations,
            summariser=summariser,
            settings=lambda: self.state.runtime.compression,
            models=models,
        )
        titler = Titler(
            self.memory.conversations,
            book,
            summariser=summariser,
            titles=lambda: self.state.runtime.loop.titles,
        )
        summaries = session_files.FileSummaries(
            self.memory.session_files,
            book,
            summariser=summariser,
            is_wanted=lambda: self.state.loaded.config.session_files.summaries == "model",
        )
        self.memory.session_files.tell = session_files.teller_of_files(book)
        return Care(compressor, titler, summaries)

    def _fact_sources(self, taint: TaintBook) -> tuple[FactSource, ...]:
        """Return the sources in the order in which the block states them."""
        return (
            Participants(),
            SaidOf("memory_vocabulary", self.knowledge.vocabulary, tools=_READING_NOTES),
            session_files.SessionFilesFact(self.memory.session_files),
            WorkspaceMessage(lambda: self.state.runtime.prompt.parts.workspace_message),
            AgentsMd(
                taint.files,
                lambda folder: AgentsMdSettings.of(self.state.runtime, self.state.policy, folder),
            ),
            AgentsFact(self.definitions["agent"], taint.files, lambda: self.state.runtime.agents),
        )

    def _hooks(self, taint: TaintBook) -> Hooks:
        # Not isolated, but bounded, and killed by the emergency stop like everything else.
        bare = SandboxSettings(mode="off", home=self.loaded.layout.home, umask=self._umask)
        return Hooks(
            lambda: self.state.hooks,
            HookTrail(journal=self.journal, flow=TaintTracking(taint), commands=self.snapshots),
            sandbox=self.sandbox,
            owner=Sandbox(bare, registry=self.estop),
            is_stopped=self.estop.is_set,
            environ=self._environ,
        )

    def _dispatch_settings(self) -> DispatchSettings:
        settings = state.dispatch_settings_of(
            self.loaded,
            self.sandbox_level,
            self.memory.session_files,
            self.snapshots,
            self.activity.count_call,
            reach=self._reach(),
        )
        return msgspec.structs.replace(
            settings, hooks=self.hooks, pictures=self.pictures, copies=self.copies
        )

    def _reach(self) -> ReachSettings:
        """Return how what tools start reaches hosts."""
        return ReachSettings(
            egress=self.egress,
            is_on=lambda: self.state.loaded.config.security.egress != "off",
            listed=lambda: self.state.loaded.config.security.egress_hosts,
        )

    def preload(self) -> None:
        """Load the default model, if the config wants it, and have it read prompts ahead."""
        preparation = self.inbox.preparation
        preloader = Preloader(self.engine, self.state, preparation, self.registry)
        preloader.start(self.background.watch)
        self._stack.push_async_callback(preloader.close)

    def begin_schedules(self) -> None:
        """Begin jobs at their times, if the config wants that."""
        if self.state.loaded.config.schedules.enabled:
            self.scheduler.start(self.background.watch)
            self.deliverer.start(self.background.watch)
        else:
            self.scheduler.note_wake(None)

    async def _begin_notices(self) -> None:
        """Begin to tell people who look elsewhere, where the config says how."""
        notify, security = self.loaded.config.notify, self.loaded.config.security
        if not (notify.desktop or notify.command or notify.webhook or notify.webhook_env):
            return
        from clawd.channels.notify import Notifier, channels_of

        try:
            address = webhook_address(notify, self._environ)
        except ConfigError as error:
            _log.warning("no notifications by webhook: %s", error.message)
            address = ""
        channels = channels_of(notify, address, security.allowed_addresses, self._environ)
        notifier = Notifier(channels, redact=self.redactor.text, after_s=notify.after_s)
        await notifier.start(self.background.watch)
        self._stack.push_async_callback(notifier.close)
        self.hub.add_listener(notifier.note)

    def _begin_upkeep(self, book: ConversationBook, rules: RuleBook) -> None:
        """Begin what goes on beside the turns: memory's housekeeping, the log of metrics."""
        book.on_forget = self.jobs.forget
        self.keeper = MemoryKeeper(
            self.memory.upkeep,
            book=book,
            rules=rules,
            limits=lambda: state.keep_limits_of(self.state.loaded),
        )
        self.keeper.start(self.background.watch)
        self._stack.push_async_callback(self.keeper.close)
        self.metrics = DaemonMetrics(
            activity=self.activity,
            engine=self.engine,
            inbox=self.inbox,
            approvals=self.approvals,
            estop=self.estop,
            chain=check_of(self.chain, self.anchor, self.memory.ledger, self._stack),
            mcp_servers=self.mcp.health,
        )
        log = MetricsLog(self.metrics.report)
        log.start(self.background.watch)
        self._stack.push_async_callback(log.close)

    async def _begin_index(self) -> None:
        """Begin to search by meaning, too, where the config names a model; or end what was."""
        named = self.loaded.config.memory.embedding
        if not named:
            await self.memory.forget_vectors()
            return
        from clawd.service.embedding import MeaningIndex, NamedEmbedder

        embedder = NamedEmbedder(
            named,
            providers=lambda: self.state.providers,
            redact=self.redactor.text,
            is_stopped=self.estop.is_set,
        )
        self.meaning = index = MeaningIndex(
            embedder,
            self.memory,
            self.knowledge,
            may_work=lambda: (
                not (self.inbox.turns[0] or self.engine.generating or self.estop.is_set())
            ),
        )
        self.engine.add_watcher(index.indexer.give_way)
        self.hub.add_listener(index.note)
        self.estop.add_listener(index.note_estop)
        index.indexer.start(self.background.watch)
        self._stack.push_async_callback(index.indexer.close)

    async def _tools(self, taint: TaintBook) -> Registry:
        limit = self.loaded.config.limits.max_tool_output_bytes
        self.jobs = Jobs(
            self.journal, TaintTracking(taint), self.snapshots, output_limit_bytes=limit
        )
        self._stack.push_async_callback(self.jobs.close)
        layout, sessions = self.loaded.layout, self.memory.session_files
        person, pins = user_home(self._environ) / ".agents", PluginPins(layout.skill_pins)
        stores = (
            (SkillStore, layout.skills),
            (AgentStore, layout.agents),
            (CommandStore, layout.commands),
        )
        self.definitions = {
            each.kind: each(
                place, person / place.name, pins, lambda: (self.state.runtime.workspace,)
            )
            for each, place in stores
        }
        servers = self._servers or make_servers(
            self.sandbox, layout.mcp, is_stopped=self.estop.is_set, ways=self._reach()
        )
        self.mcp = McpTools(servers, layout=layout, environ=self._environ, sessions=sessions)
        self._stack.push_async_callback(self.mcp.close)
        self.toolset = Toolset(
            self.memory,
            changes=self.changes,
            knowledge=self.knowledge,
            taint=taint,
            additions=Additions(self.sandbox, self._environ, layout, self.mcp, self.definitions),
            jobs=self.jobs,
        )
        self.toolset.helpers.copies = self.copies
        await self.toolset.refresh(self.state.loaded)
        registry = Registry(self.toolset.tools(self.state.loaded, self.state.policy))
        registry.elsewhere = self.mcp.directory
        return registry

    def _open_to_clients(self) -> None:
        """Make what clients call beside turns."""
        self.calls = Calls(self._dispatcher, self.person, lambda: self.state.runtime, self.hub)
        self.toolset.helpers.calls = self.calls
        self.tool_clients = ToolClients(
            self.registry,
            calls=self.calls,
            book=self.inbox.book,
            settings=lambda: self.state.runtime,
        )
        self.sops = self._sop_runner()
        self._stack.push_async_callback(self.sops.close)
        self.toolset.beside = (SopTool(self.sops),)
        self._offer_tools()

    def _scheduler(self) -> JobScheduler:
        turns = TurnWorker(self.inbox, self.keys, lambda uid: principal_of(uid, self.peers))
        means = DeliveryMeans(
            book=self.inbox.book,
            calls=lambda: self.calls,
            section=lambda: self.state.loaded.config.schedules,
            rules=lambda: state.network_rules_of(self.state.loaded),
            environ=self._environ,
            redact=self.redactor.text,
            stop=self.estop,
        )
        worker = SopWorker(turns, lambda: self.sops)
        self.deliverer = Deliverer(worker, turns, self.memory.schedules, means)
        self._stack.push_async_callback(self.deliverer.close)
        scheduler = JobScheduler(
            self.memory.schedules,
            self.deliverer,
            settings=lambda: self.state.loaded.config.schedules,
            stop=self.estop,
            wakes_at=self.loaded.layout.wakes_at,
        )
        scheduler.listen_to(self.mcp.directory)
        self._stack.push_async_callback(scheduler.close)
        return scheduler

    @property
    def peers(self) -> PeerPolicy:
        """Who may talk to it."""
        return state.peer_policy_of(self.loaded.layout, self.tools_cgroup)

    def _sop_runner(self) -> SopRunner:
        """Return what runs procedures."""
        layout, ledger = self.loaded.layout, self.memory.ledger

        async def open_intents() -> frozenset[str]:
            return frozenset(each.id for each in await ledger.open_intents())

        trail = Trail(
            path=self.loaded.config.receipts.path,
            is_recording=self.chain is not None,
            open_intents=open_intents,
            content=ledger.load_content,
        )
        actor = StepActor(self.calls, self.inbox, self.registry, jobs=self.jobs, trail=trail)
        return SopRunner(
            SopParts(
                store=SopStore(layout.sops, PluginPins(layout.sop_pins), self._schema_of),
                rows=self.memory.sop_runs,
                actor=actor,
                book=self.inbox.book,
                settings=lambda: self.state.runtime,
                estop=self.estop,
                record=self.journal.record_sop_answer,
                is_key_in_force=self._is_key_in_force,
            )
        )

    def _schema_of(self, tool: str) -> dict[str, Any] | None:
        found = self.registry.find(tool)
        return found.parameters if found is not None and found.name == tool else None

    def _is_key_in_force(self, key: str) -> bool:
        return self.keys.left_s(key) != 0.0

    def _late_answers(self) -> LateAnswers:
        return LateAnswers(
            self.memory,
            self.inbox,
            estop=self.estop,
            redactor=self.redactor,
            receipt_of=self._receipt,
            is_key_in_force=self._is_key_in_force,
        )

    async def _receipt(self, receipt_id: str) -> Receipt | None:
        """Return a receipt of the chain by its id."""
        if self.chain is None:
            return None
        return await asyncio.to_thread(find_receipt, self.chain.path, receipt_id)

    def _sandbox_settings(self, loaded: Loaded) -> SandboxSettings:
        mode = self.loaded.config.security.sandbox  # another one takes a restart
        settings = state.sandbox_settings_of(loaded, mode=mode, tools_cgroup=self.tools_cgroup)
        return msgspec.structs.replace(settings, umask=self._umask, devices=self._devices)

    @property
    def sandbox_level(self) -> str:
        """How far commands are isolated."""
        status = self.sandbox.status
        return status.level if status is not None else "none"

    # --- what handlers and the life cycle ask for

    async def reload(self) -> str:
        """Read the config again, and open a receipt log that failed; return what to tell.

        Raises:
            ConfigError: it is invalid; the old one stays in force.
            ReceiptError: the config is in force, but receipts cannot be written.
        """
        before = self.loaded
        loaded = await asyncio.to_thread(load, before.again, self._environ, before.overrides)
        late = self.state.adopt(loaded)
        self.sandbox.adopt(self._sandbox_settings(loaded))
        await self.reload_tools()
        await self.mcp.adopt(loaded)
        _log.info("config reloaded", extra={"path": str(loaded.path)})
        try:
            reopened = await reopen_receipts(self.chain, self.anchor)
        finally:
            # Afterwards: what is found in the file of rules gets its receipt.
            await _load_rules(self.rules)
        told = [f"reloaded {loaded.path}", late, reopened]
        return "; ".join(filter(None, told))

    async def reload_tools(self) -> None:
        """Read manifests and plugins again, and put the tools in force."""
        await self.toolset.refresh(self.state.loaded)
        self._offer_tools()

    def _offer_tools(self) -> None:
        self.registry.replace(self.toolset.tools(self.state.loaded, self.state.policy))

    def hold_tools(self, tools: Sequence[Tool], *, alone: bool) -> None:
        """Offer tools of the program that holds the daemon, beside the others or `alone`.

        Raises:
            InvalidRequestError: one of them cannot be taken; nothing was changed.
        """
        former = self.toolset.hold(tools, alone=alone)
        try:
            self._offer_tools()
        except ClawError:
            self.toolset.hold(former.tools, alone=former.alone)
            raise

    async def accept_receipts(self, by: Principal) -> str:
        """Take the receipt log as it stands; return what to tell."""
        if self.anchor is None:
            return "receipts are switched off"
        return await self.anchor.accept(by)
