"""The worker's entry: `python -m clawd.engine.worker --fd N`, N an inherited socket."""

import argparse
import importlib
import socket
import sys

from clawd.engine import protocol
from clawd.engine.worker.lockdown import harden, raise_fence


def main() -> int:
    """Serve the socket until it closes; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m clawd.engine.worker")
    parser.add_argument("--fd", type=int, required=True, help="an inherited stream socket")
    arguments = parser.parse_args()
    if not harden():
        return 1
    with socket.socket(fileno=arguments.fd) as connection:
        first = _next_frame(connection)
        if first is None:
            return 0
        fence = raise_fence(first.config) if isinstance(first, protocol.Load) else ""
        # Only now: llama.cpp reads the environment when it is loaded, which harden() has changed,
        # and both it and numpy start threads, which no fence could hold any more.
        try:
            importlib.import_module("clawd.engine.worker.llama")
        except (ImportError, OSError, RuntimeError) as error:
            return _refuse(connection, error)
        from clawd.engine.worker.loop import Worker

        try:
            Worker(connection, first=first, fence=fence).run()
        except MemoryError as error:
            # A traceback would tell nobody more, and push llama.cpp's last lines out.
            print(f"out of memory: {error}", file=sys.stderr)  # noqa: T201
            return 1
    return 0


def _refuse(connection: socket.socket, error: Exception) -> int:
    """Say that there is no engine, and wait to be let go: an end by itself would be a crash."""
    is_missing = isinstance(error, ModuleNotFoundError) and error.name == "llama_cpp"
    told = "is not installed" if is_missing else f"cannot be loaded: {error}"
    failed = protocol.LoadFailed(code="engine_missing", message=f"llama-cpp-python {told}")
    connection.sendall(protocol.encode(failed))
    while not isinstance(_next_frame(connection), protocol.Quit | None):
        pass
    return 0


def _next_frame(connection: socket.socket) -> protocol.ToWorker | None:
    """Wait for a frame, and read not a byte more; None at the end."""
    header = connection.recv(protocol.HEADER.size, socket.MSG_WAITALL)
    if len(header) < protocol.HEADER.size:
        return None
    (size,) = protocol.HEADER.unpack(header)
    body = connection.recv(min(size, protocol.MAX_FRAME_BYTES), socket.MSG_WAITALL)
    return protocol.decode_to_worker(body) if len(body) == size else None


if __name__ == "__main__":
    sys.exit(main())
