"""A home whose daemon goes on from story to story: it starts once, and reloads for each."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

from clawctl.client import Client, connect
from clawd.errors import ClawError
from clawd.wire.conversations import ListConversations
from clawd.wire.daemon import ClearEstop, Reload
from clawd.wire.memory import ClearMemory
from clawd.wire.models import ListLoadedModels, UnloadModel
from clawd.wire.policy import ListRules, RevokeRule
from clawd.wire.schedules import ListSchedules, RemoveSchedule
from tests.support.home import Home

KEPT = ("agents", "knowledge", "models", "plugins", "tools")  # what people put into a home


class LentHome(Home):
    """A home for one story after the other, each with a workspace and a config of its own.

    The story sees the receipts and the log since it began, and no conversation of another. What it
    does to the daemon itself is its own: one that ended is started again for the next story.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._environ = self.environ
        self._number = 0
        self._is_unread = False
        self._is_left = False  # what a story began whose daemon has ended
        self._receipts_before = 0
        self._logged_before = 0

    def lend(self) -> None:
        """Begin a story."""
        self._number += 1
        self.workspace = self._folder / f"project {self._number}"
        self.workspace.mkdir()
        self.environ = dict(self._environ)
        self._begin_here()

    def take_back(self) -> None:
        """End a story: leave nothing of it that another could meet."""
        if self.pid() is None or not self._is_cleared():
            self.close()
            self._is_left = True
        for name in KEPT:
            shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / "ESTOP").unlink(missing_ok=True)

    def configure(
        self,
        *replies: dict[str, Any],
        top: str = "",
        tables: str = "",
        provider: str = "mock",
    ) -> None:
        """Write a config, and a script that begins anew; they are read before the next call."""
        super().configure(*replies, top=top, tables=tables, provider=provider)
        self._number += 1
        script = self.path / f"script-{self._number}.json"
        (self.path / "script.json").rename(script)
        text = self.config.read_text()
        self.config.write_text(text.replace(str(self.path / "script.json"), str(script)))
        self._is_unread = True

    def start(self, *how: str) -> None:
        """Make sure that a daemon runs on the config of this story."""
        if self._is_unread and self.pid() is not None:
            with self.client() as client:
                told = client.call(Reload()).message
            if "a restart is needed" in told:
                self.close()
        if self.pid() is None:
            super().start(*how)
            if self._is_left:
                assert self._is_cleared()
                self._begin_here()
                self._is_left = False
        self._is_unread = False

    def ctl(self, *arguments: str, **how: Any) -> Any:
        """Run clawctl to its end, with a daemon that runs unless it must not be started."""
        if "--no-start" not in arguments:
            self.start()
        return super().ctl(*arguments, **how)

    def client(self) -> contextlib.AbstractContextManager[Client]:
        """Connect to the daemon without a clawctl."""
        return connect(self.path / "run" / "clawd.sock")

    def receipt_lines(self) -> list[dict[str, Any]]:
        """Return the receipts of this story, oldest first."""
        return super().receipt_lines()[self._receipts_before :]

    def log(self) -> str:
        """Return what the daemon logged in this story."""
        return super().log()[self._logged_before :]

    def _begin_here(self) -> None:
        self._receipts_before = len(super().receipt_lines())
        self._logged_before = len(super().log())

    def _is_cleared(self) -> bool:
        """Return whether the daemon is as one that has just begun, but for its receipts."""
        with contextlib.suppress(ClawError, OSError), self.client() as client:
            client.call(ClearEstop())
            client.call(ClearMemory())
            for rule in client.call(ListRules()).items:
                client.call(RevokeRule(rule_id=rule.id))
            for schedule in client.call(ListSchedules()).items:
                client.call(RemoveSchedule(name=schedule.id))
            for model in client.call(ListLoadedModels()).items:
                client.call(UnloadModel(name=model.name))
            return not client.call(ListConversations()).items
        return False
