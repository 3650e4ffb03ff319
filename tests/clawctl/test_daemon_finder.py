"""Finding a daemon that is just going."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawctl import daemon
from clawctl.daemon_finder import reach
from clawd.errors import UnreachableError
from clawd.paths import layout


@pytest.fixture
def hanging_up() -> Iterator[Callable[[Path], None]]:
    """Listens as a daemon does that ends: whoever comes is hung up on."""
    listeners: list[socket.socket] = []

    def listen(path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        listeners.append(listener)

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.close()

        threading.Thread(target=hang_up, daemon=True).start()

    yield listen
    for listener in listeners:
        listener.close()


def test_after_a_daemon_that_hangs_up_while_it_ends_another_is_started(
    environ: dict[str, str],
    hanging_up: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = layout(environ)
    hanging_up(where.socket)
    started: Any = object()
    monkeypatch.setattr(daemon, "start", lambda place, _environ: {where: started}[place])
    assert reach(None, may_start=True, environ=environ) is started


def test_another_daemon_that_hangs_up_is_not_replaced(
    environ: dict[str, str],
    hanging_up: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    other = tmp_path / "other.sock"
    hanging_up(other)
    with pytest.raises(UnreachableError, match="closed the connection"):
        reach(str(other), may_start=True, environ=environ)
