"""The blocking client against a socket that answers, refuses, stalls and lies."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawctl.client import connect, connect_any, reason_of
from clawd.errors import ClawError, ProtocolError, UnreachableError
from clawd.wire.codec import HEADER, Failure, Result, pack
from clawd.wire.daemon import Ping
from clawd.wire.events import Notice, TextDelta, TurnFinished
from clawd.wire.method import Done
from clawd.wire.turns import SendMessage
from tests.support.fake_daemon import Call, FakeDaemon

FINISHED = TurnFinished(conversation_id="c", turn_id="t", text="ab")


def test_a_call_returns_the_typed_result(daemon: FakeDaemon) -> None:
    with connect(daemon.path) as client:
        assert client.welcome.version == "9.9.9"
        assert client.call(Ping()) == Done(message="pong")
        assert client.call(Ping()) == Done(message="pong")
    (hello,) = daemon.hellos
    assert (hello.min, hello.max, hello.client) == (1, 1, "clawctl")


def test_a_stream_gives_its_events_in_order_and_then_the_result(daemon: FakeDaemon) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(TextDelta(text="a"), Notice(level="info", text="n"), TextDelta(text="b"))
        return FINISHED

    daemon.handlers["send_message"] = send_message
    with connect(daemon.path) as client:
        stream = client.stream(SendMessage(text="x"))
        events = list(stream)
        assert events == [
            TextDelta(text="a"),
            Notice(level="info", text="n"),
            TextDelta(text="b"),
        ]
        assert stream.result == FINISHED


def test_a_failure_keeps_code_message_hint_and_data(daemon: FakeDaemon) -> None:
    def ping(_call: Call) -> Done:
        raise ClawError("too much", hint="wait", code="busy", data={"retry_after_s": 2})

    daemon.handlers["ping"] = ping
    with connect(daemon.path) as client, pytest.raises(ClawError) as caught:
        client.call(Ping())
    error = caught.value
    assert (error.code, error.message, error.hint) == ("busy", "too much", "wait")
    assert error.data == {"retry_after_s": 2}


def test_events_before_a_failure_are_handed_out_first(daemon: FakeDaemon) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(TextDelta(text="a"))
        raise ClawError("broke", code="provider")

    daemon.handlers["send_message"] = send_message
    with connect(daemon.path) as client:
        stream = client.stream(SendMessage(text="x"))
        assert stream.wait() == TextDelta(text="a")
        with pytest.raises(ClawError, match="broke"):
            stream.wait()


def test_a_cancelled_stream_ends_with_cancelled(daemon: FakeDaemon) -> None:
    def send_message(call: Call) -> None:
        call.emit(TextDelta(text="a"))
        call.until_cancelled()

    daemon.handlers["send_message"] = send_message
    with connect(daemon.path) as client:
        stream = client.stream(SendMessage(text="x"))
        assert stream.wait() == TextDelta(text="a")
        stream.cancel()
        stream.cancel()
        with pytest.raises(ClawError) as caught:
            stream.wait()
    assert caught.value.code == "cancelled"


def test_answers_reach_the_handler_with_their_digest(daemon: FakeDaemon) -> None:
    def send_message(call: Call) -> TurnFinished:
        call.emit(TextDelta(text="?"))
        answer = call.answer()
        return TurnFinished(
            conversation_id="c",
            turn_id="t",
            text=f"{answer.question} {answer.value} {answer.digest}",
        )

    daemon.handlers["send_message"] = send_message
    with connect(daemon.path) as client:
        stream = client.stream(SendMessage(text="x"))
        stream.wait()
        stream.answer("q", "once", "d")
        assert stream.wait() is None
        assert stream.result.text == "q once d"


def test_wait_gives_up_after_its_limit_and_goes_on_later(daemon: FakeDaemon) -> None:
    go = threading.Event()

    def send_message(call: Call) -> TurnFinished:
        assert go.wait(60)
        return FINISHED

    daemon.handlers["send_message"] = send_message
    with connect(daemon.path) as client:
        stream = client.stream(SendMessage(text="x"))
        assert stream.wait(0.01) is None
        assert not stream.is_done
        go.set()
        assert list(stream) == []
        assert stream.result == FINISHED


def test_a_connection_that_is_lost_says_so(daemon: FakeDaemon) -> None:
    daemon.handlers["ping"] = lambda call: call.hang_up()
    with connect(daemon.path) as client:
        assert client.is_alive()
        with pytest.raises(UnreachableError, match="closed the connection") as caught:
            client.call(Ping())
        assert caught.value.hint
        assert not client.is_alive()


def test_a_call_that_is_not_answered_ends_at_its_limit(daemon: FakeDaemon) -> None:
    daemon.handlers["ping"] = lambda call: call.until_cancelled()
    with (
        connect(daemon.path) as client,
        pytest.raises(UnreachableError, match=r"did not answer ping within 0.05 s"),
    ):
        client.call(Ping(), limit_s=0.05)


def test_a_daemon_that_refuses_the_client_is_quoted(daemon: FakeDaemon) -> None:
    daemon.welcome = Failure(id=None, code="protocol", message="upgrade clawctl", hint="do it")
    with pytest.raises(ClawError) as caught:
        connect(daemon.path)
    assert (caught.value.message, caught.value.hint) == ("upgrade clawctl", "do it")


def test_something_that_does_not_greet_is_no_clawd(daemon: FakeDaemon) -> None:
    daemon.welcome = Result(id=1, value=pack(1))
    with pytest.raises(ProtocolError, match="expected a welcome"):
        connect(daemon.path)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    threads: list[threading.Thread] = []
    path = tmp_path / "raw.sock"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen(1)

    def start(data: bytes) -> Path:
        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(data)
                connection.recv(65_536)

        thread = threading.Thread(target=answer)
        thread.start()
        threads.append(thread)
        return path

    yield start
    for thread in threads:
        thread.join(60)
    server.close()


@pytest.mark.parametrize(
    "data", [HEADER.pack(2**31) + b"x", HEADER.pack(0), HEADER.pack(3) + b"abc"]
)
def test_garbage_is_refused(serve: Callable[[bytes], Path], data: bytes) -> None:
    with pytest.raises(ProtocolError):
        connect(serve(data))


class TestNobodyAnswers:
    def test_where_there_is_no_socket(self, tmp_path: Path) -> None:
        with pytest.raises(UnreachableError, match="there is no socket") as caught:
            connect(tmp_path / "none.sock")
        assert reason_of(caught.value) == "absent"
        assert "--socket" in caught.value.hint

    def test_where_the_daemon_has_died(self, tmp_path: Path) -> None:
        path = tmp_path / "stale.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(path))
        with pytest.raises(UnreachableError, match="no daemon listens") as caught:
            connect(path)
        assert reason_of(caught.value) == "refused"

    def test_where_the_path_is_too_long(self, tmp_path: Path) -> None:
        with pytest.raises(UnreachableError, match="cannot connect") as caught:
            connect(tmp_path / ("x" * 200))
        assert "107" in caught.value.hint

    def test_at_any_of_several_sockets(self, tmp_path: Path) -> None:
        with pytest.raises(UnreachableError, match=r"neither .*a.sock nor .*b.sock"):
            connect_any([tmp_path / "a.sock", tmp_path / "b.sock"])

    def test_and_the_next_socket_is_tried(self, daemon: FakeDaemon, tmp_path: Path) -> None:
        with connect_any([tmp_path / "none.sock", daemon.path]) as client:
            assert client.path == daemon.path

    def test_and_the_socket_where_something_is_explains_itself(self, tmp_path: Path) -> None:
        stale = tmp_path / "stale.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(stale))
        with pytest.raises(UnreachableError) as caught:
            connect_any([tmp_path / "none.sock", stale])
        assert reason_of(caught.value) == "refused"
