"""The first words with the daemon, while the editor is imported."""

import threading

from typing_extensions import override

from clawctl.repl.link import Link
from clawd.wire.methods import Status
from clawd.wire.reports import StatusReport


class Opening(threading.Thread):
    """Connects and asks how the daemon is, while something else goes on."""

    def __init__(self, link: Link) -> None:
        super().__init__(name="opening", daemon=True)
        self._link = link
        self._report: StatusReport | None = None
        self._error: BaseException | None = None
        self.start()

    @override
    def run(self) -> None:
        """Connect and ask."""
        try:
            self._report = self._link.client().call(Status())
        except BaseException as error:  # noqa: BLE001 it is raised again where it is waited for
            self._error = error

    def result(self) -> StatusReport:
        """Wait for the end and return the report, or raise what happened."""
        self.join()
        if self._report is None:
            assert self._error is not None
            raise self._error
        return self._report
