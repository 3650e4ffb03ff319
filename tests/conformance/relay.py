"""The command of the conformance suite: hands a scenario to the client that runs for all of them.

It loads next to nothing: the suite starts dozens of it at once.
"""

import json
import os
import socket
import sys


def main() -> int:
    """Ask for the scenario of the environment; 0 when it came to an end."""
    asked = {
        "url": sys.argv[2],
        "scenario": os.environ.get("MCP_CONFORMANCE_SCENARIO", ""),
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
    }
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sys.argv[1])
        client.sendall(json.dumps(asked).encode() + b"\n")
        seen = b"".join(iter(lambda: client.recv(1 << 16), b""))
    sys.stdout.write(seen.decode())
    return 1 if seen.startswith(b"failed:") else 0


if __name__ == "__main__":
    sys.exit(main())
