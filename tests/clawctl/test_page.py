"""`clawctl page`: the address is all that is printed, and a desktop gets it where there is one."""

import json
from pathlib import Path

import pytest

from clawctl.main import main
from clawd.wire.daemon import PageLink
from tests.clawctl.conftest import Capture
from tests.support.fake_daemon import FakeDaemon

URL = "http://127.0.0.1:8686/#login=clawd_pagelogin_word"

pytestmark = pytest.mark.usefixtures("own_home")


def test_the_address_is_all_that_is_printed(daemon: FakeDaemon, capsys: Capture) -> None:
    daemon.handlers["link_page"] = PageLink(url=URL, expires_in_s=120.0)
    assert main(["page"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{URL}\n"
    assert "It works once, for 120 seconds" in shown.err
    assert main(["page", "--json"]) == 0
    shown = capsys.readouterr()
    assert (json.loads(shown.out)["url"], shown.err) == (URL, "")


def test_an_address_without_a_login_needs_no_more_words(
    daemon: FakeDaemon, capsys: Capture
) -> None:
    daemon.handlers["link_page"] = PageLink(url="http://127.0.0.1:8686/")
    assert main(["page"]) == 0
    assert capsys.readouterr() == ("http://127.0.0.1:8686/\n", "")


def test_a_desktop_opens_it_and_where_there_is_none_it_is_printed(
    daemon: FakeDaemon, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.handlers["link_page"] = PageLink(url=URL, expires_in_s=120.0)
    opener, opened = tmp_path / "xdg-open", tmp_path / "opened"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened}"\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["page", "--open"]) == 0
    assert (opened.read_text(), capsys.readouterr().out) == (URL, "")
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(["page", "--open"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, "there is no desktop here" in shown.err) == (f"{URL}\n", True)
