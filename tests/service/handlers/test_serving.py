"""The daemon as the door of another protocol, where the one who passes it on goes away."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from clawd.channels.rpc.connection import Call
from clawd.security.principal import Principal
from clawd.service.handlers.mcp import serve_mcp
from clawd.wire.codec import Answer
from clawd.wire.mcp import LINE, ServeMcp
from tests.support.inprocess import OWNER, daemon_in

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class Gone:
    """A call whose client has a question and is gone before the answer."""

    def __init__(self) -> None:
        self.principal: Principal = OWNER
        self.ends = True
        self._sink: Any = None

    @property
    def on_answer(self) -> Any:
        return self._sink

    @on_answer.setter
    def on_answer(self, sink: Any) -> None:
        self._sink = sink
        sink(Answer(id=1, question=LINE, value=json.dumps(PING)))

    async def emit(self, _event: object) -> None:
        raise ConnectionResetError("the connection was lost")


async def test_a_client_that_goes_before_its_answer_is_no_defect(tmp_path: Path) -> None:
    async with daemon_in(tmp_path) as inside:
        with pytest.raises(ConnectionError):
            await serve_mcp(inside.daemon, ServeMcp(), cast("Call", Gone()))
