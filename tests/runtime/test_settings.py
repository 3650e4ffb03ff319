"""Where a conversation may work, and which agent speaks."""

import os
from pathlib import Path

import msgspec
import pytest

from clawd.config.schema import AgentProfile
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.runtime.settings import RuntimeSettings
from tests.support.rows import each_row


@pytest.fixture
def settings(tmp_path: Path) -> RuntimeSettings:
    for name in ("work/inner", "root/a/b", "outside", "rooted"):
        (tmp_path / name).mkdir(parents=True)
    return RuntimeSettings(
        workspace=tmp_path / "work",
        workspace_roots=(tmp_path / "root",),
        default_provider="mock",
        default_model="",
        agents={"coder": AgentProfile(model="m"), "writer": AgentProfile()},
    )


def test_no_folder_means_the_configured_one(settings: RuntimeSettings, tmp_path: Path) -> None:
    assert settings.resolve_workspace("") == (tmp_path / "work").resolve()


@each_row("name", ["work", "work/inner", "root", "root/a/b", "root/a/../a/b"], fresh=["settings"])
def test_a_folder_under_a_root_is_taken(
    settings: RuntimeSettings, tmp_path: Path, name: str
) -> None:
    assert settings.resolve_workspace(f"{tmp_path}/{name}") == (tmp_path / name).resolve()


@each_row("name", ["outside", "rooted", ".", "root/../outside", "root/.."], fresh=["settings"])
def test_a_folder_elsewhere_is_refused_with_what_would_allow_it(
    settings: RuntimeSettings, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ForbiddenError, match="lies under none of") as caught:
        settings.resolve_workspace(f"{tmp_path}/{name}")
    assert "workspace_roots" in caught.value.hint


def test_a_link_counts_as_what_it_leads_to(settings: RuntimeSettings, tmp_path: Path) -> None:
    (tmp_path / "root" / "way_out").symlink_to(tmp_path / "outside")
    with pytest.raises(ForbiddenError):
        settings.resolve_workspace(str(tmp_path / "root" / "way_out"))
    (tmp_path / "outside" / "way_in").symlink_to(tmp_path / "root" / "a")
    found = settings.resolve_workspace(str(tmp_path / "outside" / "way_in"))
    assert found == (tmp_path / "root" / "a").resolve()


def test_a_root_that_is_a_link_is_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "real" / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    settings = RuntimeSettings(
        workspace=tmp_path / "link", workspace_roots=(), default_provider="", default_model=""
    )
    assert settings.resolve_workspace("") == (tmp_path / "real").resolve()
    assert (
        settings.resolve_workspace(str(tmp_path / "real" / "in"))
        == (tmp_path / "real/in").resolve()
    )


@each_row("inside", ["", "run", "models/deep"], fresh=["settings"])
def test_clawds_own_home_is_nobodys_workspace(
    settings: RuntimeSettings, tmp_path: Path, inside: str
) -> None:
    home = tmp_path / "root" / "home"
    (home / inside).mkdir(parents=True, exist_ok=True)
    (home / "work" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "link").symlink_to(home)
    mine = msgspec.structs.replace(settings, home=home, workspace=home / "work")
    for asked in (home / inside, tmp_path / "root" / "link" / inside):
        with pytest.raises(ForbiddenError, match="clawd's own home"):
            mine.resolve_workspace(str(asked))
    assert mine.resolve_workspace("") == home / "work"
    assert mine.resolve_workspace(str(home / "work" / "sub")) == home / "work" / "sub"
    with pytest.raises(ForbiddenError, match="clawd's own home"):
        msgspec.structs.replace(mine, workspace=home).resolve_workspace("")


@each_row("asked", ["work", "./root", "~", "~/x", "\0", "/\0", " /tmp"], fresh=["settings"])
def test_only_absolute_paths_are_taken(settings: RuntimeSettings, asked: str) -> None:
    with pytest.raises(InvalidRequestError, match="not an absolute path"):
        settings.resolve_workspace(asked)


def test_what_is_no_folder_is_refused(settings: RuntimeSettings, tmp_path: Path) -> None:
    (tmp_path / "root" / "file").write_text("x")
    for asked in (tmp_path / "root" / "file", tmp_path / "root" / "missing"):
        with pytest.raises(InvalidRequestError, match="is not a folder"):
            settings.resolve_workspace(str(asked))


def test_paths_that_the_kernel_refuses_are_refused_in_a_sentence(
    settings: RuntimeSettings, tmp_path: Path
) -> None:
    loop = tmp_path / "root" / "loop"
    loop.symlink_to(loop)
    for asked in (loop, tmp_path / "root" / ("x" * 5000)):
        with pytest.raises(InvalidRequestError):
            settings.resolve_workspace(str(asked))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_behind_a_closed_one_is_refused(settings: RuntimeSettings, tmp_path: Path) -> None:
    closed = tmp_path / "root" / "a"
    closed.chmod(0)
    try:
        with pytest.raises(InvalidRequestError):
            settings.resolve_workspace(str(closed / "b"))
    finally:
        closed.chmod(0o700)


def test_an_agent_is_found_by_name(settings: RuntimeSettings) -> None:
    assert settings.agent("coder").model == "m"
    assert settings.agent("") == AgentProfile()
    with pytest.raises(NotFoundError, match="configured: coder, writer"):
        settings.agent("poet")
