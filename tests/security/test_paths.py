"""Where paths lead: inside, outside, forbidden."""

from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.security.paths import PathRules, Place, classify, path_rules
from clawd.security.policy import PolicySettings
from tests.support.rows import each_row


@pytest.fixture
def rules(tmp_path: Path) -> PathRules:
    workspace = tmp_path / "ws"
    (workspace / "keys").mkdir(parents=True)
    (workspace / "sub").mkdir()
    (tmp_path / "other").mkdir()
    (workspace / "out").symlink_to(tmp_path / "other")
    (workspace / "in").symlink_to("sub")
    (workspace / "dangling").symlink_to("/nowhere/at/all")
    (workspace / "to-keys").symlink_to("keys")
    return PathRules(
        workspace=workspace, forbidden=(workspace / "keys", Path("/etc")), home=tmp_path / "home"
    )


@each_row(
    ("path", "place"),
    [
        (".", "inside"),
        ("", "inside"),
        ("notes.txt", "inside"),
        (" notes.txt ", "inside"),
        ("sub/../notes.txt", "inside"),
        ("new/deep/file", "inside"),
        ("in/file", "inside"),
        ("..", "outside"),
        ("../ws2/file", "outside"),
        ("../ws/file", "inside"),
        ("sub/../../file", "outside"),
        ("nowhere/../../file", "outside"),
        ("out/file", "outside"),
        ("out", "outside"),
        ("dangling", "outside"),
        ("/", "outside"),
        ("/usr/bin", "outside"),
        ("/proc/self/root/usr", "outside"),
        ("/etc/passwd", "forbidden"),
        ("/etc", "forbidden"),
        ("//etc//passwd", "forbidden"),
        ("/usr/../etc/passwd", "forbidden"),
        ("/proc/self/root/etc/passwd", "forbidden"),
        ("/etcetera", "outside"),
        ("keys", "forbidden"),
        ("keys/new", "forbidden"),
        ("to-keys/id", "forbidden"),
        ("keyset", "inside"),
        ("../home", "forbidden"),
        ("../home/receipts.key", "forbidden"),
        ("~nobody-of-that-name/x", "inside"),
    ],
    fresh=["rules"],
)
def test_a_path_is_where_it_leads(rules: PathRules, path: str, place: Place) -> None:
    assert classify(path, rules).place == place


def test_the_tilde_is_the_home_of_the_user(
    rules: PathRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert classify("~/ws/file", rules).path == tmp_path / "ws" / "file"
    assert classify("~/x", rules).place == "outside"


@each_row("name", [" a ", "a /b", "~", "~/b", "./~/b", " ~", "a\u00a0", "\ta"], fresh=["rules"])
def test_only_text_of_a_model_is_trimmed_and_what_was_resolved_is_not(
    rules: PathRules, name: str
) -> None:
    place = rules.workspace / name
    assert classify(place, rules).path == place
    assert classify(f" {rules.workspace}/f \n", rules).path == rules.workspace / "f"
    assert classify(f"{rules.workspace}/f ", rules).path == rules.workspace / "f"


def test_a_workspace_inside_the_home_is_no_part_of_it(tmp_path: Path) -> None:
    rules = PathRules(workspace=tmp_path / "home" / "workspace", home=tmp_path / "home")
    assert classify("file", rules).place == "inside"
    assert classify("../memory.sqlite", rules).place == "forbidden"


def test_a_home_inside_the_workspace_is_forbidden(tmp_path: Path) -> None:
    rules = PathRules(workspace=tmp_path, home=tmp_path / ".clawd")
    assert classify(".clawd/ESTOP", rules).place == "forbidden"
    assert classify("file", rules).place == "inside"


@each_row("path", ["a\0b", "x" * 5000, "\ud800"], fresh=["rules"])
def test_what_is_no_path_is_refused(rules: PathRules, path: str) -> None:
    with pytest.raises(InvalidRequestError):
        classify(path, rules)


def test_rules_come_from_the_policy_and_a_workspace_is_not_resolved_again(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    settings = PolicySettings(forbidden_paths=("~/.ssh", "/etc"), workspace_only=False)
    rules = path_rules(settings, workspace=tmp_path / "link", home=tmp_path / "link")
    assert rules == PathRules(
        workspace=tmp_path / "link",
        workspace_only=False,
        forbidden=((Path.home() / ".ssh").resolve(), Path("/etc")),
        home=tmp_path.resolve(),
    )


def test_a_workspace_in_clawds_home_is_open_and_the_home_itself_never(tmp_path: Path) -> None:
    home = tmp_path / "home"
    inside = PathRules(workspace=home / "workspace", home=home)
    assert inside.forbids(home / "workspace" / "notes") is None
    assert inside.forbids(home / "config.toml") == home
    assert PathRules(workspace=home, home=home).forbids(home / "config.toml") == home
