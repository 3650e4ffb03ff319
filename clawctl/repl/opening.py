"""What goes on beside the start: the first words with the daemon, imports for later."""

import importlib
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


def prepare_drawing() -> None:
    """Import in the background what the first answer is drawn with; for when a prompt is up."""
    threading.Thread(target=_import_drawing, name="drawing", daemon=True).start()


def _import_drawing() -> None:
    importlib.import_module("clawctl.repl.drawing").prepare()
