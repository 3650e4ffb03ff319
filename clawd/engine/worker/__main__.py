"""The worker's entry: `python -m clawd.engine.worker --fd N`, N an inherited socket."""

import argparse
import socket
import sys

from clawd.engine.worker.process import harden


def main() -> int:
    """Serve the socket until it closes; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m clawd.engine.worker")
    parser.add_argument("--fd", type=int, required=True, help="an inherited stream socket")
    arguments = parser.parse_args()
    if not harden():
        return 1
    # llama.cpp reads the environment when it is loaded: only after harden().
    from clawd.engine.worker.loop import Worker

    with socket.socket(fileno=arguments.fd) as connection:
        try:
            Worker(connection).run()
        except MemoryError as error:
            # A traceback would tell nobody more, and push llama.cpp's last lines out.
            print(f"out of memory: {error}", file=sys.stderr)  # noqa: T201
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
