"""A daemon that runs without systemd, beside a service that is or is not there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clawctl.test_service import World
from tests.support.home import Home

pytestmark = pytest.mark.daemon


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world in whose home a daemon runs already."""
    world = World(Home(tmp_path), tmp_path)
    world.home.path = Path(world.home.environ["HOME"]) / ".clawd"
    world.home.configure()
    world.home.start()
    yield world
    world.home.close()


def test_it_hands_its_home_over_to_the_service(world: World) -> None:
    pid = world.home.pid()
    assert world.json("status", "--user")["beside"] == pid
    report = world.json("install", "--user")
    assert any(f"(pid {pid})" in step["what"] for step in report["steps"])
    assert world.home.daemon is not None
    assert world.home.daemon.wait(timeout=60) == 0


def test_stop_ends_it_where_there_is_no_systemd(world: World) -> None:
    world.says("state", "")
    world.says("problem", "System has not been booted with systemd as init system")
    assert world.home.daemon is not None
    planned = world.json("stop", "--user", "--dry-run")
    assert [step["result"] for step in planned["steps"]] == ["planned"]
    assert world.home.daemon.poll() is None

    done = world.ctl("stop", "--user")

    assert done.returncode == 0, done.stderr
    assert "end the daemon that runs without systemd" in done.stderr
    assert world.home.daemon.wait(timeout=60) == 0
    again = world.ctl("stop", "--user")
    assert again.returncode == 1
    assert "In a container" in again.stderr


def test_stop_ends_it_and_the_service_as_well(world: World) -> None:
    assert world.home.daemon is not None

    report = world.json("stop", "--user")

    assert world.home.daemon.wait(timeout=60) == 0
    assert "systemctl --user stop clawd.socket clawd.service" in world.calls()
    assert [step["result"] for step in report["steps"]] == ["done", "done"]
