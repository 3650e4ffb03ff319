#!/usr/bin/python3 -I
"""Reads one request from standard input, prints one answer: the headings of a Markdown file."""

import json
import pathlib
import sys

MAX_BYTES = 1 << 20


def outline(path, depth):
    """Return the headings down to this depth, one a line, each set in by its level."""
    lines, is_code = [], False
    with pathlib.Path(path).open(encoding="utf-8", errors="replace") as file:
        for line in file.read(MAX_BYTES).splitlines():
            if line.startswith("```"):
                is_code = not is_code
            level = len(line) - len(line.lstrip("#"))
            if not is_code and 1 <= level <= min(depth, 6) and line[level : level + 1] == " ":
                lines.append("  " * (level - 1) + line[level:].strip())
    return "\n".join(lines)


def answer(request):
    """Return the answer to a request."""
    arguments = request["arguments"]
    try:
        found = outline(arguments["path"], arguments.get("depth", 6))
    except OSError as error:
        return {"success": False, "error": f"{arguments['path']} cannot be read: {error.strerror}"}
    return {"success": True, "output": found or "(no headings)"}


print(json.dumps(answer(json.load(sys.stdin))))
