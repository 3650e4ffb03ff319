"""The page at `/`: what a browser gets, what others get, and the methods that it calls."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawd.channels.http import auth, page
from clawd.channels.http.app import LOGIN_PATH
from clawd.channels.http.model_api import Caller
from clawd.security.keys import LINK_S
from clawd.wire.daemon import LinkPage
from clawd.wire.events import ApprovalRequested
from tests.channels.http.door import guarded
from tests.channels.http.rig import Served, served
from tests.support.inprocess import OWNER

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FILES = {
    "index.html": ("text/html", b"<!doctype html><title>clawd</title>"),
    "page-AbC.js": ("text/javascript", b"console.log(1)"),
    "page-DeF.css": ("text/css", b"body{}"),
    "icon.svg": ("image/svg+xml", b"<svg/>"),
}


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these be the files that were built."""
    files = {
        name: page.File(name=name, data=data, media_type=kind)
        for name, (kind, data) in FILES.items()
    }
    monkeypatch.setattr(page, "page_files", lambda: files)


async def test_a_browser_gets_the_page_and_other_clients_the_words_they_look_for(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        async with door.session.get(door.url + "/", headers=BROWSER) as response:
            assert (await response.read()) == FILES["index.html"][1]
            rules = dict(
                rule.split(" ", 1)
                for rule in response.headers["Content-Security-Policy"].split("; ")
            )
            host = door.url.removeprefix("http://")
            assert rules["default-src"] == "'none'"
            assert rules["script-src"] == f"{host}/page/page-AbC.js"
            assert rules["style-src"] == f"{host}/page/page-DeF.css"
            assert (rules["connect-src"], rules["img-src"]) == ("'self'", "'self' blob:")
            assert rules["require-trusted-types-for"] == "'script'"
            assert rules["trusted-types"] == rules["frame-ancestors"] == "'none'"
            assert "unsafe" not in str(rules)
            assert response.headers["X-Frame-Options"] == "DENY"
        for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
            async with door.session.get(door.url + "/", headers=headers) as response:
                assert await response.text() == "Ollama is running"
        async with door.session.head(door.url + "/") as response:
            assert response.status == 200


async def test_files_are_served_by_name_and_nothing_else_is(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for name, (kind, data) in FILES.items():
            async with door.session.get(f"{door.url}/page/{name}") as response:
                if name == "index.html":
                    assert response.status == 404  # it has no policy there
                    continue
                assert (response.status, await response.read()) == (200, data)
                assert response.headers["Content-Type"].startswith(kind)
                assert ("immutable" in response.headers["Cache-Control"]) is ("-" in name)
                tag = response.headers["ETag"]
            again = {"If-None-Match": tag}
            async with door.session.get(f"{door.url}/page/{name}", headers=again) as response:
                assert (response.status, await response.read()) == (304, b"")
        for name in ("nothing.js", "..%2fapp.py", "%2e%2e/app.py", "page-AbC.js/x", ""):
            async with door.session.get(f"{door.url}/page/{name}") as response:
                assert response.status == 404, name


async def test_the_config_names_an_icon_and_without_a_good_one_the_page_has_its_own(
    tmp_path: Path,
) -> None:
    icon = tmp_path / "mine.png"
    tables = f'[channels.http]\npage_icon = "{icon}"'
    own, mine = (FILES["icon.svg"][1], "image/svg+xml"), (b"\x89PNG...", "image/png")
    async with served(tmp_path, tables=tables) as door:

        async def got() -> tuple[bytes, str]:
            async with door.session.get(f"{door.url}/page/icon.svg") as response:
                assert "sandbox" in response.headers["Content-Security-Policy"]
                return await response.read(), response.content_type

        assert await got() == own
        icon.write_bytes(mine[0])
        assert await got() == mine
        for size in (0, 256_001):
            icon.write_bytes(b"x" * size)
            assert await got() == own
        icon.unlink()
        os.mkfifo(icon)
        assert await got() == own


async def test_where_it_was_not_built_the_page_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "page_files", dict)
    async with served(tmp_path) as door:
        async with door.session.get(door.url + "/", headers=BROWSER) as response:
            assert (response.status, "make page" in await response.text()) == (200, True)
        assert (await door.get("/health"))[0] == 200


async def test_a_method_gives_its_report_and_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with served(tmp_path, {"text": "Hello."}) as door:
        status, told = await door.post("/methods/status", {})
        assert (status, told["conversations"]) == (200, 0)
        for path, body, wanted, words in (
            ("no_such", {}, 404, "there is no method 'no_such'"),
            ("show_conversation", {}, 400, "conversation_id"),
            ("show_conversation", {"conversation_id": "none"}, 404, "none"),
            ("list_receipts", {"limit": "many"}, 400, "limit"),
        ):
            status, told = await door.post(f"/methods/{path}", body)
            assert (status, words in told["error"]["message"]) == (wanted, True), told
        door.caller = Caller(principal=OWNER, scopes=frozenset({"chat", "tools"}), key_id="k1")
        status, told = await door.post("/methods/status", {})
        assert (status, "scope admin" in told["error"]["message"]) == (403, True)


async def test_a_detached_message_is_answered_when_its_turn_begins(tmp_path: Path) -> None:
    async with served(tmp_path, {"text": "Hello.", "delay_s": 0.2}) as door:
        opened = (await door.post("/methods/open_conversation", {}))[1]
        following = door.session.get(door.url + "/events")
        async with following as events:
            message = {"text": "Hi", "conversation_id": opened["id"], "detach": True}
            status, began = await door.post("/methods/send_message", message)
            assert (status, began["conversation_id"]) == (200, opened["id"])
            found = await until(events, "turn_finished")
        assert found[-1][1]["turn_id"] == began["turn_id"]
        assert "".join(each["text"] for _, each in found if each["type"] == "text") == "Hello."
        status, told = await door.post("/methods/send_message", message | {"provider": "none"})
        assert (status, "none" in told["error"]["message"]) == (404, True), told


async def test_under_the_emergency_stop_no_method_sets_a_model_to_work(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        opened = (await door.post("/methods/open_conversation", {}))[1]
        assert (await door.post("/estop", {"reason": "enough"}))[0] == 200
        named = {"conversation_id": opened["id"]}
        for method, body in (
            ("send_message", named | {"text": "Hi"}),
            ("send_message", named | {"text": "Hi", "detach": True}),
            ("compress_conversation", named),
            ("load_model", {"name": "embedded"}),
        ):
            status, told = await door.post(f"/methods/{method}", body)
            assert (status, "emergency stop" in told["error"]["message"]) == (403, True), method
        assert (await door.post("/methods/list_conversations", {}))[0] == 200


async def until(response: Any, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the events of a stream, each with its id, as far as one of that name."""
    found: list[tuple[str, dict[str, Any]]] = []
    mark = ""
    async with asyncio.timeout(60):
        async for line in response.content:
            text = line.decode().rstrip("\n")
            if text.startswith("id: "):
                mark = text.removeprefix("id: ")
            elif text.startswith("data: "):
                found.append((mark, json.loads(text.removeprefix("data: "))))
                mark = ""
                if found[-1][1]["type"] == name:
                    return found
    raise AssertionError(f"the stream ended before {name}")


async def test_a_follower_goes_on_behind_the_last_event_it_saw(tmp_path: Path) -> None:
    async with served(tmp_path, {"text": "Hello."}) as door:
        async with door.session.get(door.url + "/events") as events:
            await say(door, "first")
            seen = await until(events, "turn_finished")
        ids = [mark for mark, _ in seen]
        assert all(ids) and len(set(ids)) == len(ids)
        await say(door, "second")
        headers = {"Last-Event-ID": ids[-1]}
        async with door.session.get(door.url + "/events", headers=headers) as events:
            missed = await until(events, "turn_finished")
        assert missed[-1][1]["turn_id"] != seen[-1][1]["turn_id"]
        assert not {mark for mark, _ in missed} & set(ids)
        for lost in ("0badcafe-1", ids[-1].partition("-")[0] + "-999999", "rubbish", "-"):
            headers = {"Last-Event-ID": lost}
            async with door.session.get(door.url + "/events", headers=headers) as events:
                assert (await until(events, "resync"))[0][1] == {"type": "resync"}, lost


async def say(door: Served, text: str) -> None:
    status, _ = await door.post("/chat", {"message": text})
    assert status == 200


async def test_a_turn_says_who_began_it_and_its_answer_what_it_took(tmp_path: Path) -> None:
    async with served(tmp_path, {"text": "Hello."}) as door:
        opened = (await door.post("/methods/open_conversation", {}))[1]
        named = {"conversation_id": opened["id"]}
        async with door.session.get(door.url + "/events") as events:
            sent = named | {"text": "Hi", "client": "page"}
            status, finished = await door.post("/methods/send_message", sent)
            assert status == 200
            [began] = [e for _, e in await until(events, "turn_finished") if "client" in e]
            assert began["client"] == "page"
        async with door.session.get(door.url + "/events") as events:
            assert (await door.post("/chat", {"message": "Hi", **named}))[0] == 200
            [began] = [e for _, e in await until(events, "turn_finished") if "client" in e]
            assert began["client"] == "http"
        detail = (await door.post("/methods/show_conversation", named))[1]
        took = [each["usage"] for each in detail["messages"]]
        assert (took[0], took[1]) == (None, finished["usage"])
        assert took[1]["completion_tokens"] > 0


async def test_without_a_key_only_the_gateways_own_page_is_an_admin(tmp_path: Path) -> None:
    # The test's process is the daemon's own, which is refused when it is looked at: so what is
    # told apart here is who is looked at, and by a key, what the header alone is worth.
    own = {"X_Clawd_Page": "1", "Sec_Fetch_Site": "same-origin"}
    async with guarded(tmp_path, own_routes=True) as door:
        plain = await door.make_key(OWNER, "chat", "tools")
        reply = await door.ask("POST", "/methods/status", body=b"{}", key=plain, **own)
        assert (reply.status, b"scope admin" in reply.body) == (403, True)
        admin = await door.make_key(OWNER, "admin")
        reply = await door.ask("POST", "/methods/status", body=b"{}", key=admin)
        assert reply.status == 200
        for site in ("cross-site", "same-site"):
            reply = await door.ask(
                "POST", "/methods/status", body=b"{}", key=admin, Sec_Fetch_Site=site
            )
            assert reply.status == 403, site
        for key in ("none", "clawd_x_y"):  # once there is a key, the page needs one too
            reply = await door.ask("POST", "/methods/status", body=b"{}", key=key, **own)
            assert reply.status == 401, key


async def test_a_one_time_link_becomes_a_key_once(tmp_path: Path) -> None:
    async with guarded(tmp_path, own_routes=True) as door:
        own = {"X_Clawd_Page": "1", "Sec_Fetch_Site": "same-origin"}
        made = await door.inside.ask(LinkPage(), OWNER)
        address, _, text = made.url.partition("/#login=")
        assert (address, made.expires_in_s) == (f"http://127.0.0.1:{door.port}", LINK_S)
        for wrong in (
            {"Sec_Fetch_Site": "same-origin"},
            {**own, "Sec_Fetch_Site": "cross-site"},
            {**own, "Origin": "http://elsewhere.example"},
        ):
            reply = await door.ask("POST", LOGIN_PATH, body=b"", key=text, **wrong)
            assert reply.status == 403, wrong
        reply = await door.ask("POST", "/methods/status", body=b"{}", key=text, **own)
        assert reply.status == 401  # it is no key
        reply = await door.ask("POST", LOGIN_PATH, body=b"", key=text, **own)
        assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
        key = reply.json()["key"]
        found = await door.ask("POST", "/methods/list_keys", body=b"{}", key=key, **own)
        page = next(line for line in found.json()["items"] if line["name"] == "page")
        assert (page["owner"], page["scopes"]) == (OWNER.uid, ["chat", "tools", "admin"])
        assert page["expires_at"]
        again = await door.ask("POST", LOGIN_PATH, body=b"", key=text, **own)
        assert (again.status, "used already" in again.json()["error"]["message"]) == (401, True)


async def test_a_link_for_this_machine_is_for_browsers_of_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"X_Clawd_Page": "1", "Sec_Fetch_Site": "same-origin"}
    async with guarded(tmp_path, 'allowed_hosts = ["clawd.lan"]', own_routes=True) as door:
        for uid, at, status in (
            (OWNER.uid + 1, "", 403),
            (None, "localhost", 403),  # not of this machine, or nobody can tell
            (OWNER.uid, "", 200),
            (None, "clawd.lan", 200),
        ):
            monkeypatch.setattr(auth, "uid_of", lambda _peer, _ours, uid=uid: uid)
            made = await door.inside.ask(LinkPage(at=at), OWNER)
            key = made.url.rpartition("=")[2]
            reply = await door.ask("POST", LOGIN_PATH, body=b"", key=key, **own)
            assert reply.status == status, (uid, at)


async def test_a_link_names_the_gateway_as_the_browser_reaches_it(tmp_path: Path) -> None:
    async with guarded(tmp_path, 'allowed_hosts = ["clawd.lan"]', with_key=False) as door:
        port = door.port
        # No key was ever made: the page asks for none.
        for at, wanted in (
            ("", f"http://127.0.0.1:{port}/"),
            ("localhost", f"http://localhost:{port}/"),
            ("[::1]:99", "http://[::1]:99/"),
        ):
            assert (await door.inside.ask(LinkPage(at=at), OWNER)).url == wanted
        for at, wanted in (
            ("https://clawd.lan", "https://clawd.lan/"),
            ("10.0.0.7", f"http://10.0.0.7:{port}/"),
        ):
            found = (await door.inside.ask(LinkPage(at=at), OWNER)).url
            assert found.startswith(f"{wanted}#login=clawd_pagelogin_"), found
        assert "#login=" in (await door.inside.ask(LinkPage(always=True), OWNER)).url
        for at in ("elsewhere.example", "http://clawd.lan/x", "a@clawd.lan", "ftp://clawd.lan"):
            refused = await door.inside.refused(LinkPage(at=at), OWNER)
            assert "no name of this gateway" in refused.message, at


async def test_a_command_is_filled_with_what_ran_when_the_page_said_yes(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        place = tmp_path / "home" / "commands"
        place.mkdir()
        (place / "look.md").write_text("Look at $1: !`touch $1 && echo made`")
        opened = (await door.post("/methods/open_conversation", {}))[1]
        wanted = {"name": "look", "arguments": "'a b'", "conversation_id": opened["id"]}
        events = door.inside.daemon.hub.subscribe(OWNER)
        filling = asyncio.create_task(
            door.post("/methods/fill_command", wanted | {"interactive": True})
        )
        while not isinstance(asked := (await anext(events)).event, ApprovalRequested):
            pass
        assert asked.arguments == '{"command":"touch \'a b\' && echo made"}'
        assert not filling.done()
        answer = {"answer": "once", "digest": asked.digest}
        status, _ = await door.post(f"/approvals/{asked.approval_id}", answer)
        assert status == 200
        status, filled = await filling
        assert (status, filled["text"]) == (200, "Look at a b: made")
        assert (door.inside.workspace / "a b").exists()
        assert door.inside.receipts()[-1].conversation_id == opened["id"]
        # Under the emergency stop it ends without a message.
        await door.post("/estop", {})
        status, filled = await door.post("/methods/fill_command", wanted)
        assert (status, filled["text"], filled["ran"][0]["kind"]) == (200, "", "stopped")
        # A client that may not manage clawd gets no method at all.
        door.caller = Caller(principal=OWNER, scopes=frozenset({"chat", "tools"}))
        assert (await door.post("/methods/fill_command", wanted))[0] == 403
