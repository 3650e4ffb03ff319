"""A server on standard input and output that behaves as its first argument says."""

import json
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else "good"
REVISION = sys.argv[2] if len(sys.argv) > 2 else "2025-11-25"
SPEAKS_NEWEST = HOW.startswith("slow-newest")
TELLS = HOW.startswith("tells")
ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "says it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
tools: list[dict[str, Any]] = [ECHO]
writing = threading.Lock()


def raw(text: str) -> bool:
    with writing:
        sys.stdout.write(text)
        sys.stdout.flush()
    return True


def send(message: dict[str, Any]) -> bool:
    return raw(json.dumps({"jsonrpc": "2.0"} | message) + "\n")


def answer(number: Any, result: dict[str, Any]) -> bool:
    newest = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return send({"id": number, "result": result | (newest if SPEAKS_NEWEST else {})})


def note(method: str, **params: Any) -> bool:
    return send({"method": method, "params": params})


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def fetched(words: str) -> str:
    """Do what words say: `get URL`, or `keep HOST:PORT` a tunnel and send some bytes through it."""
    import socket
    import urllib.request

    what, _, where = words.partition(" ")
    try:
        if what == "get":
            with urllib.request.urlopen(where, timeout=30) as got:
                return str(got.read().decode())
        if what == "direct":
            host, _, port = where.rpartition(":")
            socket.create_connection((host, int(port)), 5)
            return "out"
        if where not in tunnels:
            tunnels[where] = socket.create_connection(("127.0.0.1", 3128), 30)
            tunnels[where].sendall(f"CONNECT {where} HTTP/1.1\r\n\r\n".encode())
            tunnels[where].recv(1000)
        tunnels[where].sendall(b"x" * 1000)
        return f"{len(tunnels[where].recv(1000))} bytes"
    except OSError as error:
        return f"failed: {error}"


tunnels: dict[str, Any] = {}
after_handshake: list[Callable[[], object]] = []


def looked(words: str) -> str:
    """Run a line of shell, as programs that a server starts do."""
    import subprocess

    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True)
    return done.stdout + done.stderr


def on_initialize(number: Any, params: dict[str, Any]) -> bool:
    if HOW == "hang-at-connect":
        time.sleep(300)
    if HOW == "dies-at-connect":
        print("cannot find its configuration", file=sys.stderr, flush=True)
        os._exit(3)
    if HOW == "absurd-revision":
        return answer(
            number, {"protocolVersion": "2099-99-99", "capabilities": {}, "serverInfo": {}}
        )
    if HOW == "revision-is-no-text":
        return answer(number, {"protocolVersion": {"a": 1}, "capabilities": {}, "serverInfo": {}})
    result: dict[str, Any] = {
        "protocolVersion": REVISION,
        "capabilities": {"tools": {"listChanged": True}},
    }
    if TELLS:
        offers = {"resources": {"subscribe": True}, "logging": {}}
        result["capabilities"] |= offers if HOW == "tells" else {}
    if HOW != "bare-handshake":
        result["serverInfo"] = {"name": "test", "version": "1"}
    return answer(number, result)


def on_discover(number: Any) -> None:
    """Answer late: until a file is there, or each time only after the old handshake."""
    if HOW == "slow-newest-always":
        after_handshake.append(lambda: name_newest(number))
    elif pathlib.Path(f"{HOW}.go").exists():
        name_newest(number)
    else:
        threading.Thread(target=name_newest_late, args=(number,), daemon=True).start()


def name_newest_late(number: Any) -> None:
    while not pathlib.Path(f"{HOW}.go").exists():
        time.sleep(0.01)
    name_newest(number)


def name_newest(number: Any) -> bool:
    return answer(
        number,
        {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "slow", "version": "1"},
        },
    )


def on_list(number: Any, params: dict[str, Any]) -> bool:
    global tools
    cursor = params.get("cursor")
    if HOW == "hang-at-list":
        time.sleep(300)
    if HOW == "dies-at-list":
        os._exit(1)
    if HOW == "list-is-null":
        return answer(number, {"tools": None})
    if HOW == "list-is-an-error":
        return send({"id": number, "error": {"code": -32603, "message": "no list today"}})
    if HOW == "cursor-loop":
        return answer(number, {"tools": [ECHO], "nextCursor": "again"})
    if HOW == "endless-pages":
        page = int(cursor or 0)
        return answer(number, {"tools": [ECHO | {"name": f"t{page}"}], "nextCursor": str(page + 1)})
    if HOW == "many-tools":
        return answer(number, {"tools": [ECHO | {"name": f"t{i}"} for i in range(3000)]})
    if HOW == "bad-schemas":
        deep: dict[str, Any] = {"type": "object"}
        for _ in range(60):
            deep = {"type": "object", "properties": {"a": deep}}
        return answer(
            number,
            {
                "tools": [
                    {"name": "none"},
                    {"name": "empty", "inputSchema": {}},
                    {"name": "text", "inputSchema": "object"},
                    {"name": "array", "inputSchema": {"type": "array"}},
                    {"name": "deep", "inputSchema": deep},
                    {
                        "name": "huge",
                        "inputSchema": {"type": "object", "description": "x" * 100_000},
                    },
                    {"name": "nan", "inputSchema": {"type": "object", "maximum": float("nan")}},
                    {"inputSchema": {"type": "object"}},
                    "no tool",
                    None,
                    ECHO,
                ]
            },
        )
    if HOW == "absurd-names":
        names = ["", " ", "x" * 5000, "a\nb", "\u202egnp", 7, None, "dots.and/slashes and blanks"]
        bad = [ECHO | {"name": name} for name in names]
        return answer(number, {"tools": [*bad, ECHO, ECHO | {"description": "another"}]})
    return answer(number, {"tools": tools})


def on_call(number: Any, params: dict[str, Any]) -> bool:
    global tools
    words = (params.get("arguments") or {}).get("text", "")
    name = params.get("name")
    if name == "die" or HOW == "dies-in-call":
        os._exit(9)
    if HOW == "hang-in-call":
        return True
    if HOW == "stops-reading":
        time.sleep(300)
    if TELLS:
        for line in words.splitlines():
            count, _, said = line.partition(" ") if line[:1].isdigit() else ("1", "", line)
            raw(f"{said}\n" * int(count))
        return answer(number, text("told"))
    if HOW == "reaches-out":
        return answer(number, text(fetched(words)))
    if HOW == "looks-around":
        return answer(number, text(looked(words)))
    if HOW == "null-is-error":
        return answer(number, text(words) | {"isError": None})
    if HOW == "no-content":
        return answer(number, {})
    if HOW == "unknown-content":
        return answer(
            number, {"content": [{"type": "hologram", "x": 1}, 5, {"type": "text", "text": words}]}
        )
    if HOW == "huge-line":
        return answer(number, text("x" * 30_000_000))
    if HOW == "endless-line":
        while True:
            raw("x" * 1_000_000)
    if HOW == "large-result":
        return answer(number, text("x" * 5_000_000))
    if HOW == "call-error":
        return send({"id": number, "error": {"code": -32602, "message": "no such tool\x1b[31m"}})
    if HOW == "wrong-answer":
        send({"id": 99999, "result": text("for nobody")})
        send({"id": "nobody", "result": text("for nobody")})
        return answer(number, text(words))
    if HOW == "answers-twice":
        answer(number, text(words))
        return answer(number, text("the second"))
    if HOW == "result-is-a-list":
        return raw(json.dumps({"jsonrpc": "2.0", "id": number, "result": [1]}) + "\n")
    if HOW == "deep-result":
        return raw(
            f'{{"jsonrpc":"2.0","id":{number},"result":{{"structuredContent":'
            + "[" * 150
            + "]" * 150
            + ',"content":[]}}\n'
        )
    if HOW == "asks-for-everything":
        for i in range(200):
            send(
                {
                    "id": f"s{i}",
                    "method": "sampling/createMessage",
                    "params": {"messages": [], "maxTokens": 1},
                }
            )
            send(
                {
                    "id": f"e{i}",
                    "method": "elicitation/create",
                    "params": {"message": "?", "requestedSchema": {}},
                }
            )
            send({"id": f"r{i}", "method": "roots/list"})
        return answer(number, text(words))
    if HOW == "changes-tools":
        tools = [*tools, ECHO | {"name": f"echo{len(tools)}"}]
        answer(number, text(words))
        return note("notifications/tools/list_changed")
    if HOW == "changes-tools-in-call":
        tools = [*tools, ECHO | {"name": f"echo{len(tools)}"}]
        note("notifications/tools/list_changed")
        return answer(number, text(words))
    if HOW == "progress":
        token = (params.get("_meta") or {}).get("progressToken")
        note("notifications/progress", progressToken=token, progress=1, total=2, message="half")
        return answer(number, text(words))
    if HOW == "progress-flood":
        token = (params.get("_meta") or {}).get("progressToken")
        for done in (*range(1, 300), *[300] * 300):
            note("notifications/progress", progressToken=token, progress=done, total=300)
        return answer(number, text(words))
    if name == "env":
        return answer(number, text(json.dumps(dict(os.environ))))
    return answer(number, text(words))


def on_start() -> None:
    if HOW in ("ignores-the-end", "ignores-everything", "grandchildren"):
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
    if HOW == "grandchildren" and os.fork() == 0:
        os.setsid() if not FENCED else None
        if os.fork() == 0:
            time.sleep(300)
        os._exit(0)
    if HOW == "junk":
        raw('starting up...\n\n{"half": \n\x00\x01\n[1, 2]\n"text"\n{}\n' + "{" * 5000 + "\n")
        sys.stdout.buffer.write(b"\xff\xfe broken \xc3\x28\n")
        sys.stdout.buffer.flush()
    if HOW == "silent":
        time.sleep(300)
    if HOW == "stderr-flood":
        threading.Thread(target=flood, daemon=True).start()


def flood() -> None:
    while True:
        os.write(2, b"complaint " * 1000 + b"\n")


STORMS = {
    "junk-flood": "x\n" * 1000,
    "notification-flood": json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 100}}
    )
    + "\n",
    "list-changed-storm": '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n',
}


FENCED = os.environ.get("FENCED") == "1"


def main() -> None:
    on_start()
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        number = message.get("id")
        if number is None or method is None:
            if method is None and HOW == "asks-for-everything":
                print(number, message.get("error"), file=sys.stderr, flush=True)
            if method and HOW in ("notes", "hang-in-call"):
                print(method, file=sys.stderr, flush=True)
            continue
        if method == "server/discover" and SPEAKS_NEWEST:
            on_discover(number)
        elif method == "initialize":
            on_initialize(number, params)
            while after_handshake:
                after_handshake.pop()()
        elif method == "tools/list":
            on_list(number, params)
            if HOW == "dies-when-idle":
                threading.Timer(0.5, os._exit, (4,)).start()
        elif method == "tools/call" and HOW in STORMS:
            while True:
                raw(STORMS[HOW])
        elif method == "tools/call":
            if HOW == "slow":
                threading.Timer(0.3, on_call, (number, params)).start()
            else:
                on_call(number, params)
        elif method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
            print(method, *params.values(), file=sys.stderr, flush=True)
            if HOW == "tells-not" or params.get("uri") == "note://none":
                send({"id": number, "error": {"code": -32002, "message": "no such resource"}})
            else:
                answer(number, {})
        elif method == "ping":
            answer(number, {})
        elif HOW == "ignores-unknown":
            continue
        elif HOW == "dies-of-unknown":
            os._exit(7)
        else:
            send({"id": number, "error": {"code": -32601, "message": "no such method"}})
    if HOW in ("ignores-the-end", "ignores-everything", "grandchildren"):
        while True:
            time.sleep(1)
    if HOW == "slow-close":
        time.sleep(0.4)


main()
