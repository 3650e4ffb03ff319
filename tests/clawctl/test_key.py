"""`clawctl key`: a key says where it is good for something, or that it is not yet."""

import json

import pytest

from clawctl.main import main
from clawd.wire.daemon import KeyLine, NewKey
from tests.clawctl.conftest import Capture
from tests.support.fake_daemon import FakeDaemon

KEY = "clawd_abc_word"
LINE = KeyLine(id="abc", name="laptop", owner=0, scopes=("chat",), created_at="2026-11-21")

pytestmark = pytest.mark.usefixtures("own_home")


def create(daemon: FakeDaemon, gateway: str, *more: str) -> int:
    daemon.handlers["create_key"] = NewKey(key=KEY, line=LINE)
    daemon.handlers["status"] = daemon.status(gateway=gateway, config="/etc/clawd/config.toml")
    return main(["key", "create", *more])


def test_a_key_is_all_that_is_printed_and_people_are_told_where_it_is_for(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    assert create(daemon, "http://127.0.0.1:8686") == 0
    shown = capsys.readouterr()
    assert shown.out == f"{KEY}\n"
    assert "The gateway is at http://127.0.0.1:8686." in shown.err


def test_a_key_for_a_gateway_that_is_off_says_how_to_switch_it_on(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    assert create(daemon, "") == 0
    shown = capsys.readouterr()
    assert shown.out == f"{KEY}\n"
    assert "The gateway is off" in shown.err
    assert "enabled = true in [channels.http] of /etc/clawd/config.toml" in shown.err


def test_programs_get_the_key_alone(daemon: FakeDaemon, capsys: Capture) -> None:
    assert create(daemon, "", "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["key"] == KEY
    assert shown.err == ""
