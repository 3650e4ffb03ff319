"""What commands keep between them: listed by project, and cleared but for what is in use."""

from pathlib import Path

from clawd.wire.daemon import ClearCaches, ListCaches
from tests.support.inprocess import OWNER, daemon_in


async def test_caches_are_listed_by_project_and_cleared_but_for_those_in_use(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path, tables="[sandbox]\ncache_mb = 3") as inside:
        caches = inside.daemon.sandbox.caches
        assert caches is not None
        folders = [tmp_path / name for name in ("one", "two", "busy")]
        for folder in folders:
            home = caches.enter(folder)
            (home / ".npm" / "thing").write_bytes(b"x" * 10_000)
        for folder in folders[:2]:
            caches.leave(folder)
        listed = await inside.ask(ListCaches(), OWNER)
        assert listed.limit_bytes == 3 << 20
        assert {each.workspace for each in listed.items} == set(map(str, folders))
        assert all(each.size_bytes >= 10_000 and each.used_at[:2] == "20" for each in listed.items)

        one = await inside.ask(ClearCaches(workspace=str(folders[0])), OWNER)
        assert ([each.workspace for each in one.removed], one.in_use) == ([str(folders[0])], ())
        nothing = await inside.ask(ClearCaches(workspace=str(tmp_path / "unknown")), OWNER)
        assert (nothing.removed, nothing.in_use) == ((), ())
        rest = await inside.ask(ClearCaches(), OWNER)
        assert [each.workspace for each in rest.removed] == [str(folders[1])]
        assert [each.workspace for each in rest.in_use] == [str(folders[2])]
        caches.leave(folders[2])
        assert len((await inside.ask(ClearCaches(), OWNER)).removed) == 1
        assert (await inside.ask(ListCaches(), OWNER)).items == ()


async def test_where_commands_keep_nothing_there_is_nothing_to_list(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables="[sandbox]\ncache_mb = 0") as inside:
        assert (await inside.ask(ListCaches(), OWNER)).items == ()
        assert (await inside.ask(ClearCaches(), OWNER)).removed == ()
