"""Hosts that a call wants to reach: listed, granted, asked about, refused, and in its receipt."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from clawd.errors import InvalidRequestError
from clawd.receipts.record import canonical, parse
from clawd.receipts.verify import verify
from clawd.security.approval_rules import host_rule
from clawd.security.approvals import Answer
from clawd.security.network import NetworkRules
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.egress import Egress
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Arguments, ToolContext, ToolResult, Touched, succeeded
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.child_outcome import told_of
from clawd.tools.dispatch import Dispatcher
from clawd.tools.external import external_tool
from clawd.tools.outcome import CallOutcome
from clawd.wire.policy import HOST_TOOL, covers_host, host_grant
from tests.receipts.samples import draft
from tests.security.fakes import ADA
from tests.support import second_verifier
from tests.support.dispatching import Bench, Probe, bench_in, request
from tests.support.rows import each_row
from tests.tools.external_files import entry, manifest, program, read

GRANTED = "ok"


class Asker(Probe):
    """Asks for the hosts of its text, one after the other, and tells which it may reach."""

    reaches_hosts: ClassVar[bool] = True

    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        assert context.way_out is not None
        told = []
        for name in arguments["text"].split():
            host, _, port = name.rpartition(":")
            denial = await context.way_out._decide(host, int(port))
            told.append(GRANTED if denial is None else f"{denial.reason} ({denial.hint})")
        return succeeded("\n".join(told))


class World:
    """A bench whose calls reach hosts; `listed` is what the config grants."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.listed: tuple[str, ...] = ()
        self.is_on = True
        self.bench.reach = ReachSettings(
            egress=Egress(), is_on=lambda: self.is_on, listed=lambda: self.listed
        )
        self.tool: Probe = Asker()
        self._held: Probe | None = None
        self._dispatcher: Dispatcher | None = None

    async def ask(self, hosts: str, *answers: Answer, policy: PolicySettings | None = None) -> str:
        """Make a call that asks for hosts, answer its questions, and return what it says."""
        if self._dispatcher is None or policy is not None or self.tool is not self._held:
            self._held = self.tool
            self._dispatcher = self.bench.dispatcher([self.tool], policy=policy)
        call = request("probe", msgspec.json.encode({"text": hosts}).decode())
        task = asyncio.create_task(self._dispatcher.call(call, self.bench.scope()))
        for answer in answers:
            await self.bench.answer(answer)
        return (await task).text

    async def grant(self, host: str, *, days: int = 30, workspace: str = "") -> str:
        rules = self.bench.rules
        rule = host_rule(
            host,
            owner=ADA.uid,
            workspace=workspace,
            conversation_id="",
            days=days,
            now=rules.now(),
        )
        await rules.add(rule)
        return rule.id


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with bench_in(tmp_path) as bench:
        yield World(bench)


@each_row(
    ("text", "grant"),
    [
        ("Get.Example.org", "get.example.org:443"),
        ("get.example.org.:8443", "get.example.org:8443"),
        ("https://get.example.org/simple", "get.example.org:443"),
        ("http://mirror.lan:8080/x?y", "mirror.lan:8080"),
        ("http://packages.example.org", "packages.example.org:80"),
        ("*.Example.org:443", "*.example.org:443"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ("ftp://x.org", ""),
        ("*.org:443", ""),
        ("*:443", ""),
        ("a.*.org:443", ""),
        ("x.org:0", ""),
        ("x.org:70000", ""),
        ("ada@x.org:443", ""),
        ("x..org", ""),
        ("", ""),
        ("bücher.example", ""),
    ],
)
def test_a_grant_is_read_in_the_forms_that_people_write(text: str, grant: str) -> None:
    if grant:
        assert host_grant(text) == grant
        assert host_grant(grant) == grant
        return
    with pytest.raises(InvalidRequestError):
        host_grant(text)


def test_a_wildcard_is_for_subdomains_and_the_port_must_be_equal() -> None:
    assert covers_host("*.example.org:443", "a.b.example.org", 443)
    for host, port in (("example.org", 443), ("a.example.org", 80), ("aexample.org", 443)):
        assert not covers_host("*.example.org:443", host, port)
    assert not covers_host("example.org:443", "a.example.org", 443)


async def test_a_host_is_asked_about_once_in_a_call_and_anew_in_the_next(world: World) -> None:
    assert await world.ask("a.org:443 a.org:443 b.org:443", "once", "deny") == (
        "ok\nok\nb.org:443 is not granted: denied by the user (clawctl policy allow --host "
        f"b.org:443 --project -C {world.bench.workspace})"
    )
    assert await world.ask("a.org:443", "once") == GRANTED
    assert world.bench.asked.empty()


async def test_a_grant_for_the_conversation_or_always_covers_the_next_call(world: World) -> None:
    assert await world.ask("a.org:443 b.org:443", "conversation", "always") == "ok\nok"
    assert await world.ask("a.org:443 b.org:443") == "ok\nok"
    assert "is not granted" in await world.ask("a.org:80", "deny")
    patterns = sorted(rule.pattern for rule in world.bench.rules.rules(ADA))
    where = world.bench.workspace
    assert patterns == [f"host a.org:443 in {where}", f"host b.org:443 in {where}"]


async def test_where_nobody_can_be_asked_the_host_is_refused_and_the_text_says_how_to_allow_it(
    world: World,
) -> None:
    world.bench.is_reachable = False
    told = await world.ask("a.org:443")
    assert "nobody could be asked" in told
    assert "clawctl policy allow --host a.org:443 --project -C " in told


async def test_listed_hosts_are_reached_unasked_and_in_readonly_no_others(world: World) -> None:
    world.listed = ("a.org:443", "*.b.org:443")
    assert await world.ask("a.org:443 x.b.org:443") == "ok\nok"
    readonly = PolicySettings(autonomy="readonly")
    told = await world.ask("a.org:443 b.org:443", policy=readonly)
    assert told.startswith("ok\nb.org:443: readonly runs low risk only")


async def test_a_rule_of_a_host_covers_what_it_names_until_it_is_revoked_or_over(
    world: World,
) -> None:
    elsewhere = await world.grant("a.org:443", workspace="/elsewhere")
    everywhere = await world.grant("*.b.org:443")
    assert (await world.ask("a.org:443 x.b.org:443", "deny")).endswith("\nok")
    for rule in (elsewhere, everywhere):
        await world.bench.rules.revoke(rule, ADA)
    assert "is not granted" in await world.ask("x.b.org:443", "deny")
    await world.grant("c.org:443", days=0)
    assert "is not granted" in await world.ask("c.org:443", "deny")


async def test_in_a_tainted_conversation_every_new_host_asks_whatever_is_granted(
    world: World,
) -> None:
    world.listed = ("a.org:443", "*.example.org:443")
    await world.grant("b.org:443")
    assert await world.ask("a.org:443") == GRANTED
    world.bench.taint.mark("conv-1", "web_fetch evil.test")
    assert await world.ask("a.org:443") == GRANTED, "it was reached before the text came"
    secret = "c2VjcmV0.example.org:443"
    told = await world.ask(f"b.org:443 {secret}", "once", "deny")
    assert told.startswith("ok\nc2VjcmV0.example.org:443 is not granted: denied by the user")
    assert await world.ask("b.org:443") == GRANTED, "it is not new any more"


class Losing(Asker):
    """Loses the proxy while it runs."""

    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        assert context.way_out is not None
        result = await super().invoke(arguments, context)
        context.way_out.lose("the egress proxy ended")
        return result


async def test_a_proxy_that_ended_stands_in_the_receipt_and_in_what_the_model_is_told(
    world: World,
) -> None:
    world.tool = Losing()
    world.listed = ("a.org:443",)
    told = await world.ask("a.org:443")
    (receipt,) = world.bench.receipts()
    assert (receipt.contacted, receipt.refused) == ("", "*")
    assert "cut, and nothing more led out: the egress proxy ended]" in told


class Given(Asker):
    """A tool that was given hosts by what makes it."""

    hosts: ClassVar[tuple[str, ...]] = ("a.org:443", "*.b.org:443")


async def test_a_tool_reaches_the_hosts_that_it_was_given_and_asks_about_others(
    world: World,
) -> None:
    world.tool = Given()
    assert await world.ask("a.org:443 x.b.org:443 c.org:443", "once") == "ok\nok\nok"
    world.bench.taint.mark("conv-1", "web_fetch evil.test")
    # A name in full carries nothing, and the call was asked about; below a wildcard one does.
    assert await world.ask("a.org:443 c2VjcmV0.b.org:443", "once") == "ok\nok"
    assert world.bench.asked.empty()
    given = (*Given.hosts, "*")
    world.tool = type("Open", (Given,), {"hosts": given})()
    told = await world.ask("a.org:443 bmV4dA.evil.test:443", "deny")
    assert told.startswith("ok\nbmV4dA.evil.test:443 is not granted")


async def test_without_egress_in_the_config_a_call_has_no_way_out(world: World) -> None:
    world.is_on = False
    assert "failed" in await world.ask("a.org:443")  # the tool of this test wants one


async def test_the_policy_explains_hosts_as_it_does_calls(world: World) -> None:
    world.listed = ("a.org:443",)
    dispatcher = world.bench.dispatcher([Asker()])
    words = {}
    for host in ("a.org:443", "b.org", "not a host"):
        given = msgspec.json.encode({"host": host}).decode()
        try:
            _, verdict = dispatcher.explain(request(HOST_TOOL, given), world.bench.scope())
        except InvalidRequestError as error:
            words[host] = error.message
        else:
            words[host] = type(verdict).__name__
    assert words == {
        "a.org:443": "Allow",
        "b.org": "Ask",
        "not a host": "'not a host' is no host",
    }


class Fetcher(Asker):
    """Runs its text in the real sandbox."""

    sandbox: ClassVar[Sandbox]

    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        return Touched(writes=(context.workspace,))

    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        command = ChildCommand(
            argv=("bash", "-c", arguments["text"]), workspace=context.workspace, timeout_s=30
        )
        return told_of(await self.sandbox.run(command, way_out=context.way_out), 30)


@pytest.mark.sandbox
async def test_the_receipt_lists_the_hosts_and_the_conversation_and_its_files_are_tainted(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    async with bench_in(tmp_path) as bench:
        bench.workspace = workspace
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            threading.Thread(target=_answer, args=(server,), daemon=True).start()
            name = f"good.test:{server.getsockname()[1]}"
            told = await _fetched(bench, name)
        (receipt,) = bench.receipts()
        up_down = receipt.contacted.split()[2]
        assert receipt.contacted == f"{name} 127.0.0.1 {up_down} config"
        assert receipt.contacted.split()[2].endswith("/43")
        assert receipt.refused == "bad.test:80"
        assert "[clawd refused a connection: bad.test:80 is not granted" in told.text
        assert told.metadata["hosts_contacted"] == [name]
        assert bench.taint.sources("conv-1") == (f"host {name}",)
        assert f"host {name}" in await bench.taint.files.sources((workspace / "kept",))
        assert not await bench.taint.files.sources((tmp_path / "memory.sqlite",))


async def _fetched(bench: Bench, name: str) -> CallOutcome:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    egress = Egress(lambda: NetworkRules(allowed_addresses=(name,)), resolve=resolve)
    bench.reach = ReachSettings(egress=egress, listed=lambda: (name,))
    Fetcher.sandbox = Sandbox(SandboxSettings())
    script = f"curl -sS http://{name}/ > kept; curl -sS -o /dev/null http://bad.test/; cat kept"
    call = request("probe", msgspec.json.encode({"text": script}).decode())
    try:
        task = asyncio.create_task(bench.dispatcher([Fetcher()]).call(call, bench.scope()))
        await bench.answer("deny")
        return await task
    finally:
        await egress.close()


@pytest.mark.sandbox
async def test_an_external_tool_reaches_the_hosts_of_its_manifest_and_asks_about_others(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    async with bench_in(tmp_path) as bench:
        bench.workspace = workspace
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            threading.Thread(target=_answer, args=(server,), daemon=True).start()
            name = f"127.0.0.1:{server.getsockname()[1]}"  # named itself, so it may be private
            script = f"curl -sS http://{name}/; curl -sS http://bad.test/"
            text = f"#!/bin/sh\n{script}\n"
            (spec,) = read(manifest(entry(command=program(tmp_path / "p", text), hosts=[name])))
            sandbox = Sandbox(SandboxSettings())
            tool = external_tool(spec, sandbox=sandbox, environ={}, most_s=60.0)
            egress = Egress()
            bench.reach = ReachSettings(egress=egress)
            call = request("probe", "{}")
            dispatcher = bench.dispatcher([tool], sandbox_level="bwrap")
            try:
                task = asyncio.create_task(dispatcher.call(call, bench.scope()))
                await bench.answer("once")  # the call
                await bench.answer("deny")  # the other host
                outcome = await task
            finally:
                await egress.close()
        (receipt,) = bench.receipts()
        first, address, _, by = receipt.contacted.split()
        assert (first, address, by) == (name, "127.0.0.1", "manifest")
        assert receipt.refused == "bad.test:80"
        assert "hello" in outcome.text
        assert "bad.test:80 is not granted: denied by the user" in outcome.text
        assert "the external tool probe" in bench.taint.sources("conv-1")


def _answer(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


def test_receipts_with_and_without_hosts_are_verified_by_both_verifiers(tmp_path: Path) -> None:
    from clawd.receipts.record import seal
    from clawd.wire.receipts import GENESIS_HASH

    rows: list[dict[str, Any]] = [{}, {"contacted": "a.org:443 1.2.3.4 1/2 config"}]
    rows += [{"refused": "b.org:443"}, {}]
    log, previous, lines = tmp_path / "log", GENESIS_HASH, []
    for seq, fields in enumerate(rows, 1):
        receipt = seal(draft(**fields), seq=seq, previous_hash=previous)
        previous = receipt.receipt_hash
        lines.append(canonical(receipt))
        assert parse(lines[-1]) == receipt
    assert b"contacted" not in lines[0] and b"refused" not in lines[0]
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    assert verify(log).ok
    assert second_verifier.verify(log)[0] == 4
    log.write_bytes(log.read_bytes().replace(b"a.org:443", b"c.org:443"))
    assert not verify(log).ok
    assert second_verifier.verify(log)[0] == 1
