"""Who judges calls under a policy that differs from the one in force, and the table of cases."""

import logging
from collections.abc import Callable

import msgspec

from clawd.config.load import Loaded, load_text
from clawd.errors import ClawError, NotFoundError
from clawd.runtime.replay import Judge, PolicyChange
from clawd.security.approval_rules import RuleBook
from clawd.security.approvals import Approvals
from clawd.security.gate import Gate
from clawd.security.policy import PolicySettings
from clawd.security.taint import TaintBook
from clawd.service.state import State, policy_of
from clawd.tools.audit import DispatchSettings
from clawd.tools.base import Tool
from clawd.tools.dispatch import Dispatcher
from clawd.tools.journal import Journal
from clawd.tools.registry import Registry

_log = logging.getLogger(__name__)


async def load_rules(rules: RuleBook) -> None:
    """Read the standing approvals; where they cannot be read none is in force, which is told."""
    try:
        await rules.load()
    except ClawError as error:
        _log.warning("standing approvals are not in force: %s", error.message)


class PolicyPreview:
    """Makes judges. None of them runs a tool.

    Args:
        state: the configuration in force.
        tools: the tools as a configuration, its policy and what is tainted want them.
        rules: the standing rules, which count for a judge too.
        approvals: asks nobody here.
        journal: writes nothing here.
        sandbox_level: the level in force.
    """

    def __init__(
        self,
        state: State,
        *,
        tools: Callable[[Loaded, PolicySettings, TaintBook], list[Tool]],
        rules: RuleBook,
        approvals: Approvals,
        journal: Journal,
        sandbox_level: str,
    ) -> None:
        self._state = state
        self._tools = tools
        self._rules = rules
        self._approvals = approvals
        self._journal = journal
        self._sandbox_level = sandbox_level

    def judge_of(self, change: PolicyChange) -> Judge:
        """Return who judges under a policy that differs from the one in force.

        Raises:
            ConfigError: the other configuration is invalid.
        """
        loaded = self._state.loaded
        if change.config is not None:
            loaded = load_text(change.config, self._state.environ)
        policy, taint = policy_of(loaded), TaintBook()
        if change.autonomy is not None:
            policy = msgspec.structs.replace(policy, autonomy=change.autonomy)
        if change.allowed_domains is not None:
            policy = msgspec.structs.replace(policy, allowed_domains=change.allowed_domains)
        explainer = Dispatcher(
            Registry(self._tools(loaded, policy, taint)),
            gate=Gate(lambda: policy, estop=_NeverStopped(), taint=taint, rules=self._rules),
            approvals=self._approvals,
            journal=self._journal,
            taint=taint,
            settings=DispatchSettings(sandbox_level=self._sandbox_level),
        )
        return Judge(explainer, taint, policy)

    def policy_cases(self) -> str:
        """Return the configured table of policy cases; blocks.

        Raises:
            NotFoundError: there is none, or it cannot be read.
        """
        path = self._state.loaded.config.security.policy_cases
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise NotFoundError(
                f"the table of policy cases {path} cannot be read: {error}",
                hint="Name a file, or set policy_cases in [security] of the config.",
            ) from error


class _NeverStopped:
    """The emergency stop of a judge: what a policy answers does not depend on it."""

    def is_set(self) -> bool:
        """Tell that it is not set."""
        return False
