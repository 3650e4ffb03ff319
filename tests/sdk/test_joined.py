"""Sessions with a daemon that others started."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawd.sdk import AsyncSession, Session
from clawd.wire.daemon import Status
from tests.sdk.rig import calling, error_of
from tests.support.home import Home
from tests.support.rows import each_row

WRITE = calling("file_write", {"path": "a.txt", "content": "words"})


@pytest.mark.daemon
def test_it_answers_with_the_daemons_own_prompt_tools_and_receipts(home: Home) -> None:
    home.configure(*WRITE, top='[agent]\nsystem_prompt = "You are Ada."')
    home.start()
    with Session.daemon(home=home.path) as session:
        assert session.render_system().startswith("You are Ada.")
        session.on_approval(lambda question: question.tool == "file_write")
        (call,) = session.chat("write").calls
        first = session.conversation_id
        assert len(session.history()) == 4
        assert session.reset().history() == ()
        session.chat("again")
        assert session.conversation_id not in {"", first}
        assert session.verify_receipts().ok
        assert session.call(Status()).pid == home.pid()
    assert (home.workspace / "a.txt").read_text() == "words"
    assert home.receipt_lines()[0]["id"] == call.receipt_id
    assert home.json("status")["turns_running"] == 0  # it stays when the session ends


@pytest.mark.daemon
async def test_the_async_face_joins_by_the_socket_and_chooses_agent_and_workspace(
    home: Home,
) -> None:
    other = home.workspace.parent / "other"
    other.mkdir()
    (other / "here.txt").write_text("x")
    home.configure(*calling("file_list", {}), tables='[agents.bob]\nsystem_prompt = "You are Bob."')
    home.start()
    where = home.json("status")["socket"]
    async with AsyncSession.daemon(socket=where, agent="bob", workspace=other) as session:
        assert "You are Bob." in await session.render_system()
        assert (await session.chat("list")).text == "here.txt"
        assert "You are Bob." in await session.render_system()


@pytest.mark.daemon
def test_what_needs_a_yes_is_denied_without_a_callback(home: Home) -> None:
    home.configure(*WRITE)
    home.start()
    with Session.daemon(home=home.path) as session:
        assert session.chat("write").denied == 1


@pytest.mark.daemon
def test_a_daemon_that_ends_is_an_error_and_one_that_comes_back_is_used(home: Home) -> None:
    home.configure()
    home.start()
    with Session.daemon(home=home.path) as session:
        session.chat("hello")
        home.kill()
        assert error_of(lambda: session.chat("hello")).code == "unreachable"
        home.start()
        assert session.chat("there").text == "there"
        assert len(session.history()) == 4


def nothing(text: str) -> str:
    """Do nothing."""
    return text


@each_row(
    "wish",
    [
        lambda s: s.system("x"),
        lambda s: s.no_builtin_system(),
        lambda s: s.system_append("x"),
        lambda s: s.preamble_options(rules=False),
        lambda s: s.with_default_tools(False),
        lambda s: s.add_tool(nothing),
        lambda s: s.set_system("x"),
    ],
)
def test_a_wish_about_somebody_elses_prompt_or_tools_is_refused(
    wish: Callable[[Session], Any],
) -> None:
    error = error_of(lambda: wish(Session.daemon()))
    assert (error.code, "Session.local()" in error.hint) == ("invalid_request", True)


@pytest.mark.daemon
def test_the_layers_below_are_the_daemons_own(home: Home) -> None:
    home.configure()
    home.start()
    with Session.daemon(home=home.path) as session:
        assert "its engine" in error_of(lambda: session.engine).message
        assert "its provider" in error_of(lambda: session.provider).message


def test_without_a_daemon_it_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    with Session.daemon(home=tmp_path) as session:
        error = error_of(lambda: session.chat("hello"))
    assert (error.code, str(tmp_path / "run" / "clawd.sock") in error.message) == (
        "unreachable",
        True,
    )
    assert "Session.local()" in error.hint
    assert list(tmp_path.iterdir()) == []  # none is started


def test_a_socket_where_nobody_listens_any_more_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with Session.daemon(socket=path) as session:
        assert error_of(session.init).code == "unreachable"


def test_who_is_no_daemon_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawd.sdk.client.CONNECT_LIMIT_S", 0.2)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with Session.daemon(socket=path) as session:
            error = error_of(session.init)
    assert (error.code, "does not greet" in error.message) == ("unreachable", True)
