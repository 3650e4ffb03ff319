"""Requests on the control socket: hello, results, failures, streams, answers, cancelling."""

import asyncio

import pytest

from clawd.channels.rpc.connection import RpcServer
from clawd.errors import ForbiddenError
from clawd.wire.codec import (
    Answer,
    Cancel,
    EventFrame,
    Failure,
    Hello,
    Request,
    Result,
    Welcome,
    unpack,
    unpack_event,
)
from clawd.wire.daemon import ClearEstop, Ping, ShowConfig, Shutdown, Status
from clawd.wire.events import TextDelta, TurnFinished
from clawd.wire.method import Done
from clawd.wire.policy import ListApprovals, ListRules
from clawd.wire.receipts import ListReceipts
from clawd.wire.tools import ListTools
from clawd.wire.turns import FollowConversation, SendMessage
from tests.channels.rpc.rig import IDENTITY, LIMIT_S, ROOT, RawClient, Rig, request
from tests.support.rows import each_row


async def read_turn(client: RawClient) -> tuple[list[str], TurnFinished]:
    texts = []
    while isinstance(frame := await client.read(), EventFrame):
        event = unpack_event(frame.event)
        assert isinstance(event, TextDelta)
        texts.append(event.text)
    assert isinstance(frame, Result), frame
    return texts, unpack(frame.value, TurnFinished)


async def test_a_hello_is_answered_by_who_the_daemon_is_and_who_the_client_is(rig: Rig) -> None:
    client = await rig.client()
    assert await client.hello() == Welcome(
        protocol=1, version="9.9", pid=4242, home="/home/ada/.clawd", role="user"
    )
    rig.principal = ROOT
    other = await rig.client()
    assert (await other.hello()).role == "admin"


@each_row(
    ("low", "high", "advice"),
    [(2, 9, "upgrade clawd"), (-3, 0, "upgrade clawctl"), (5, 1, "upgrade")],
    fresh=["rig"],
)
async def test_a_range_without_our_version_is_refused_in_a_sentence(
    rig: Rig, low: int, high: int, advice: str
) -> None:
    client = await rig.client()
    client.send(Hello(min=low, max=high))
    failure = await client.failure()
    assert (failure.id, failure.code) == (None, "protocol")
    assert f"speaks protocol {low} to {high}, this daemon 1 to 1" in failure.message
    assert advice in failure.message
    assert await client.rest() == []


async def test_a_wider_range_is_agreed_on_what_both_speak(rig: Rig) -> None:
    client = await rig.client()
    client.send(Hello(min=0, max=99))
    welcome = await client.read()
    assert isinstance(welcome, Welcome)
    assert welcome.protocol == 1


async def test_a_request_gets_its_result(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(5, Ping()))
    frame = await client.read()
    assert isinstance(frame, Result)
    assert frame.id == 5
    assert unpack(frame.value, Done) == Done(message="ping for 1000")


async def test_requests_in_the_same_bytes_as_the_hello_are_served(rig: Rig) -> None:
    client = await rig.client()
    client.send(Hello(min=1, max=1), request(1, Ping()))
    assert isinstance(await client.read(), Welcome)
    assert await client.done() == "ping for 1000"


async def test_an_unknown_method_is_refused_and_the_connection_goes_on(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(Request(id=3, method="ping_pong" * 1000))
    failure = await client.failure()
    assert (failure.id, failure.code) == (3, "unknown_method")
    assert len(failure.message) < 200
    assert "upgrade" in failure.hint
    assert await client.ping() == "ping for 1000"


async def test_methods_are_those_of_the_wire_only(rig: Rig) -> None:
    client = await rig.greeted()
    for name in ("__init__", "_waiting", "started", "Ping", ""):
        client.send(Request(id=1, method=name))
        assert (await client.failure()).code == "unknown_method"


async def test_wrong_parameters_are_refused_with_the_place(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(Request(id=1, method="list_receipts", params=request(1, Status()).params))
    assert await client.done()
    bad = Request(id=2, method="send_message", params=request(1, ListReceipts()).params)
    client.send(bad)
    failure = await client.failure()
    assert (failure.id, failure.code) == (2, "invalid_request")
    assert "text" in failure.message


async def test_a_user_may_not_call_what_is_for_admins(rig: Rig) -> None:
    client = await rig.greeted()
    for params in (Shutdown(), ClearEstop()):
        client.send(request(1, params))
        assert (await client.failure()).code == "forbidden"
    rig.principal = ROOT
    admin = await rig.greeted()
    admin.send(request(1, Shutdown()))
    assert await admin.done() == "shutdown for 0"


async def test_an_expected_error_keeps_its_code_and_hint(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, ListTools()))
    assert await client.failure() == Failure(
        id=1, code="not_found", message="no such thing", hint="look elsewhere"
    )


async def test_a_defect_ends_its_request_and_tells_no_details(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = await rig.greeted()
    client.send(request(1, ListRules()))
    failure = await client.failure()
    assert (failure.id, failure.code) == (1, "internal")
    assert "KeyError" in failure.message
    assert "secret" not in failure.message
    assert "list_rules failed with a defect" in caplog.text
    assert await client.ping() == "ping for 1000"


async def test_a_disk_that_fails_is_logged_and_a_wrong_request_is_not(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    client = await rig.greeted()
    client.send(request(1, ListTools()))
    await client.failure()
    assert caplog.text == ""
    client.send(request(2, ListApprovals()))
    assert (await client.failure()).code == "storage"
    assert "list_approvals failed: the disk is full" in caplog.text


async def test_a_result_too_big_for_a_frame_is_a_failure(rig: Rig) -> None:
    rig.principal = ROOT
    client = await rig.greeted()
    client.send(request(1, ShowConfig()))
    failure = await client.failure()
    assert (failure.id, failure.code) == (1, "protocol")
    assert "limit" in failure.message
    assert "cursor" in failure.hint
    assert await client.ping() == "ping for 0"


async def test_events_come_in_order_before_the_result(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, SendMessage(text="bye")))
    texts, finished = await read_turn(client)
    assert texts == ["one", "two"]
    assert finished.text == "bye"


async def test_requests_run_side_by_side(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, Status()), request(2, Ping()))
    assert await client.done() == "ping for 1000"
    rig.handlers.open.set()
    assert await client.done() == "the door is open"


async def test_an_id_under_way_is_refused_and_free_again_afterwards(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, Status()))
    await rig.soon(rig.handlers.started)
    client.send(request(1, Ping()))
    failure = await client.failure()
    assert (failure.id, failure.code) == (1, "invalid_request")
    rig.handlers.open.set()
    assert await client.done() == "the door is open"
    assert await client.ping(1) == "ping for 1000"


async def test_an_answer_reaches_the_request_it_names(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, SendMessage(text="ask")))
    assert [type(await client.read()) for _ in range(2)] == [EventFrame] * 2
    client.send(
        Answer(id=99, question="q", value="lost"),
        Answer(id=1, question="q7", value="once", digest="d"),
    )
    assert (await read_turn(client))[1].text == "q7=once d"
    client.send(Answer(id=1, question="q7", value="late"))
    assert await client.ping() == "ping for 1000"


async def test_an_answer_to_a_request_that_asks_nothing_is_ignored(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, Status()), Answer(id=1, question="q", value="v"))
    rig.handlers.open.set()
    assert await client.done() == "the door is open"


async def test_a_cancelled_request_says_so(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, Status()))
    await rig.soon(rig.handlers.started)
    client.send(Cancel(id=1))
    assert (await client.failure()).code == "cancelled"
    assert await rig.soon(rig.handlers.ended) == "cancelled"
    assert await client.ping(1) == "ping for 1000"


async def test_a_cancel_right_behind_its_request_is_answered_too(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, Status()), Cancel(id=1), Cancel(id=1), Cancel(id=2))
    failure = await client.failure()
    assert (failure.id, failure.code) == (1, "cancelled")
    assert await client.ping(2) == "ping for 1000"


async def test_a_stream_can_be_cancelled(rig: Rig) -> None:
    rig.handlers.event = TextDelta(text="small")
    client = await rig.greeted()
    client.send(request(1, FollowConversation(conversation_id="c")))
    assert isinstance(await client.read(), EventFrame)
    client.send(Cancel(id=1))
    while isinstance(frame := await client.read(), EventFrame):
        pass
    assert isinstance(frame, Failure)
    assert frame.code == "cancelled"


async def test_a_client_that_goes_takes_its_requests_along(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, Status()))
    await rig.soon(rig.handlers.started)
    client.close()
    assert await rig.soon(rig.handlers.ended) == "cancelled"


async def test_closing_the_server_ends_connections_and_requests(rig: Rig) -> None:
    client = await rig.greeted()
    client.send(request(1, Status()))
    await rig.soon(rig.handlers.started)
    await rig.server.close()
    assert await rig.soon(rig.handlers.ended) == "cancelled"
    assert all(isinstance(frame, Failure) for frame in await client.rest())
    with pytest.raises(OSError):
        await asyncio.open_unix_connection(rig.path)


async def test_clients_that_are_there_stay_when_listening_ends(rig: Rig) -> None:
    client = await rig.greeted()
    await rig.server.stop_listening()
    assert await client.ping() == "ping for 1000"


async def test_a_server_without_all_handlers_does_not_start() -> None:
    with pytest.raises(TypeError, match=r"no handler for: .*send_message"):
        RpcServer({}, identify=lambda _peer: ROOT, identity=IDENTITY)


async def test_a_peer_that_may_not_speak_is_told_why(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_peer: object) -> None:
        raise ForbiddenError("uid 666 may not talk to this daemon")

    def unknown(_peer: object) -> None:
        raise OSError("no credentials")

    for identify, text in ((refuse, "uid 666"), (unknown, "cannot be identified")):
        monkeypatch.setattr(rig, "identify", identify)
        client = await rig.client()
        client.send(Hello(min=1, max=1))
        failure = await client.failure()
        assert (failure.id, failure.code) == (None, "forbidden")
        assert text in failure.message
        assert await client.rest() == []


async def test_a_second_cancel_does_not_break_off_the_answer_to_the_first(rig: Rig) -> None:
    """The first one's answer waits behind a stream that the client does not read."""
    client = await rig.greeted()
    client.send(request(1, FollowConversation(conversation_id="c")))
    (connection,) = (each for each in rig.server._clients.values() if each is not None)
    async with asyncio.timeout(LIMIT_S):
        while connection.writer.transport.get_write_buffer_size() <= 64 * 1024:
            await asyncio.sleep(0.001)
    assert await rig.soon(rig.handlers.started) == "follow"
    client.send(request(2, Status()))
    assert await rig.soon(rig.handlers.started) == "status"
    client.send(Cancel(id=2))
    assert await rig.soon(rig.handlers.ended) == "cancelled"
    client.send(Cancel(id=2), request(3, Status()))
    assert await rig.soon(rig.handlers.started) == "status"
    frame = await client.read()
    while isinstance(frame, EventFrame):
        frame = await client.read()
    assert isinstance(frame, Failure)
    assert (frame.id, frame.code) == (2, "cancelled")


async def test_the_sockets_file_is_left_to_whoever_made_it(rig: Rig) -> None:
    """A socket that systemd handed over must still be there for the next start."""
    await rig.server.close()
    assert rig.path.is_socket()
