"""The table of paths: user mode, system mode, overrides, and sockets that the kernel takes."""

import os
from pathlib import Path

import pytest

from clawd.paths import (
    MAX_SOCKET_PATH_BYTES,
    SYSTEM_CONFIG,
    SYSTEM_HOME,
    SYSTEM_SOCKET,
    candidate_sockets,
    layout,
    socket_of_home,
)
from tests.support.rows import each_row

HOME = {"HOME": "/home/ada"}
RUNTIME = {"XDG_RUNTIME_DIR": "/run/user/1000"}


def test_the_default_home_lies_in_the_users_home() -> None:
    where = layout(HOME | RUNTIME)
    assert where.home == Path("/home/ada/.clawd")
    assert where.config == Path("/home/ada/.clawd/config.toml")
    assert where.socket == Path("/run/user/1000/clawd/clawd.sock")
    assert where.workspace == Path("/home/ada/clawd-workspace")
    assert not where.is_system


def test_without_a_runtime_folder_the_socket_lies_in_the_home() -> None:
    assert layout(HOME).socket == Path("/home/ada/.clawd/run/clawd.sock")


def test_a_relative_runtime_folder_is_ignored() -> None:
    where = layout(HOME | {"XDG_RUNTIME_DIR": "run"})
    assert where.socket == Path("/home/ada/.clawd/run/clawd.sock")


def test_another_home_keeps_everything_to_itself() -> None:
    where = layout(HOME | RUNTIME | {"CLAWD_HOME": "/srv/claw"})
    assert where.home == Path("/srv/claw")
    assert where.config == Path("/srv/claw/config.toml")
    assert where.socket == Path("/srv/claw/run/clawd.sock")
    assert where.workspace == Path("/srv/claw/workspace")


def test_the_default_home_named_by_hand_is_the_default_home() -> None:
    named = layout(HOME | RUNTIME | {"CLAWD_HOME": "/home/ada/.clawd"})
    assert named == layout(HOME | RUNTIME)


def test_an_empty_variable_is_as_if_it_were_not_set() -> None:
    assert layout(HOME | {"CLAWD_HOME": "", "CLAWD_SOCKET": ""}) == layout(HOME)


def test_a_uid_without_an_account_may_name_its_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    assert layout({"CLAWD_HOME": "/srv/claw"}).home == Path("/srv/claw")
    assert layout({}).home == Path("/nonexistent/.clawd")


def test_a_relative_home_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert layout(HOME | {"CLAWD_HOME": "here"}).home == tmp_path / "here"


def test_the_system_home_means_system_mode() -> None:
    where = layout(HOME | RUNTIME | {"CLAWD_HOME": "/var/lib/clawd/"})
    assert where.is_system
    assert (where.home, where.config, where.socket, where.workspace) == (
        SYSTEM_HOME,
        SYSTEM_CONFIG,
        SYSTEM_SOCKET,
        Path("/var/lib/clawd/workspace"),
    )


def test_a_named_socket_wins_in_both_modes() -> None:
    for home in ("/srv/claw", "/var/lib/clawd"):
        where = layout(HOME | {"CLAWD_HOME": home, "CLAWD_SOCKET": "/tmp/my.sock"})
        assert where.socket == Path("/tmp/my.sock")


def test_what_lies_in_the_home() -> None:
    where = layout({"HOME": "/h"})
    names = {
        "database": "memory.sqlite",
        "receipts": "tool_receipts.log",
        "secret_key": "receipts.key",
        "checkpoint_key": "checkpoint.key",
        "checkpoint_public_key": "checkpoint.pub",
        "approval_rules": "approval_rules.json",
        "estop": "ESTOP",
        "log": "clawd.log",
        "lock": "clawd.lock",
        "models": "models",
        "cache": "cache",
    }
    assert {name: getattr(where, name) for name in names} == {
        name: Path("/h/.clawd") / file for name, file in names.items()
    }


@each_row("length", [60, 91, 92, 93, 200, 4000])
@each_row("runtime", ["", "/run/user/1000", "/r" * 60])
@each_row("is_default", [True, False])
def test_no_socket_is_longer_than_the_kernel_takes(
    length: int, runtime: str, *, is_default: bool
) -> None:
    home = Path("/" + "h" * (length - 1))
    socket = socket_of_home(home, {"XDG_RUNTIME_DIR": runtime}, is_default=is_default)
    assert len(os.fsencode(socket)) <= MAX_SOCKET_PATH_BYTES
    assert socket.is_absolute()


def test_a_socket_in_the_home_is_used_up_to_the_last_byte() -> None:
    room = MAX_SOCKET_PATH_BYTES - len("/run/clawd.sock")
    fits, too_long = Path("/" + "h" * (room - 1)), Path("/" + "h" * room)
    assert socket_of_home(fits, RUNTIME, is_default=False) == fits / "run" / "clawd.sock"
    other = socket_of_home(too_long, RUNTIME, is_default=False)
    assert other.parent == Path("/run/user/1000/clawd")


def test_long_homes_get_sockets_of_their_own() -> None:
    homes = [Path("/" + "h" * 120), Path("/" + "h" * 121)]
    sockets = {
        socket_of_home(home, environ, is_default=False)
        for home in homes
        for environ in (RUNTIME, {})
    }
    assert len(sockets) == 4


def test_a_client_tries_what_it_was_told_and_nothing_else() -> None:
    environ = HOME | RUNTIME
    assert candidate_sockets("/tmp/x.sock", environ) == [Path("/tmp/x.sock")]
    named = environ | {"CLAWD_SOCKET": "/tmp/y.sock", "CLAWD_HOME": "/srv/claw"}
    assert candidate_sockets(None, named) == [Path("/tmp/y.sock")]
    homed = environ | {"CLAWD_HOME": "/srv/claw"}
    assert candidate_sockets("", homed) == [Path("/srv/claw/run/clawd.sock")]


def test_a_client_that_was_told_nothing_tries_its_own_then_the_systems() -> None:
    assert candidate_sockets(None, HOME | RUNTIME) == [
        Path("/run/user/1000/clawd/clawd.sock"),
        SYSTEM_SOCKET,
    ]
