"""The program that reads untrusted content: `python -I -S program.py PATHS`, in the sandbox.

Parsers of HTML, PDF and pictures are large and meet hostile input, so the daemon never loads them.
Standard input holds one line of JSON, the job, and the bytes to read; each line of standard output
is one JSON object, so that what was read before a limit ended the process is not lost.

    {"kind": "page", "memory_bytes": 536870912, "cpu_s": 15, "max_chars": 200000, "url": "…"}
    <html>…
"""

import os
import sys
import types


def main() -> int:
    """Do the job that standard input gives."""
    import json
    import resource

    from clawd.tools.readers import page, pdf, picture, search

    given = sys.stdin.buffer.read()
    line, _, data = given.partition(b"\n")
    job = json.loads(line)
    # What libraries say of broken input is of no use, and would stand among the answers.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_DATA, (job["memory_bytes"], job["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"] + 1))
    readers = {"page": page, "pdf": pdf, "picture": picture, "search": search}
    for answer in readers[job["kind"]].read(job, data):
        text = json.dumps(answer, ensure_ascii=True)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    # This folder's names are no top-level modules, and the one above the package is not seen.
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]  # noqa: PTH120 - pathlib takes longer to import than all of this
    sys.path += sys.argv[1].split(os.pathsep)
    package = types.ModuleType("clawd")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]  # noqa: PTH120 - likewise
    sys.modules["clawd"] = package
    sys.exit(main())
