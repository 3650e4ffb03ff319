"""debian/copyright: ours, and a paragraph for each vendored package, made from its metadata.

Run as `python -m bootstrap.package_copyright ROOT WHEELS OURS TARGET` after the site is made; it
also takes the licence files out of the site, for their text is in the result.
"""

import re
import shutil
import sys
import textwrap
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

from bootstrap.package_site import SITE

LICENSE_NAME = re.compile(r"(?i)licen[cs]e|copying|notice|copyright|authors")
# Texts that Debian has in /usr/share/common-licenses, known by a line of their own.
COMMON = {
    "Apache-2.0": re.compile(r"TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"),
    "GPL-3": re.compile(r"GNU GENERAL PUBLIC LICENSE\s+Version 3, 29 June 2007"),
    "GPL-2": re.compile(r"GNU GENERAL PUBLIC LICENSE\s+Version 2, June 1991"),
    "LGPL-2.1": re.compile(r"GNU LESSER GENERAL PUBLIC LICENSE\s+Version 2\.1"),
    "MPL-1.1": re.compile(r"MOZILLA PUBLIC LICENSE\s+Version 1\.1"),
    "MPL-2.0": re.compile(r"Mozilla Public License Version 2\.0\s+=+"),
}
END_OF_TEXT = re.compile(r"END OF TERMS AND CONDITIONS")
# Named in metadata, with no text in the wheel.
KNOWN_TEXTS = {
    "MIT": """\
        Permission is hereby granted, free of charge, to any person obtaining a copy of this
        software and associated documentation files (the "Software"), to deal in the
        Software without restriction, including without limitation the rights to use, copy,
        modify, merge, publish, distribute, sublicense, and/or sell copies of the Software,
        and to permit persons to whom the Software is furnished to do so, subject to the
        following conditions:

        The above copyright notice and this permission notice shall be included in all
        copies or substantial portions of the Software.

        THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED,
        INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A
        PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT
        HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
        CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE
        OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.""",
    "BSD-2-Clause": """\
        Redistribution and use in source and binary forms, with or without modification, are
        permitted provided that the following conditions are met: 1. Redistributions of
        source code must retain the above copyright notice, this list of conditions and the
        following disclaimer. 2. Redistributions in binary form must reproduce the above
        copyright notice, this list of conditions and the following disclaimer in the
        documentation and/or other materials provided with the distribution.

        THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY
        EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES
        OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT
        SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT,
        INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED
        TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR
        BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN
        CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN
        ANY WAY OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH
        DAMAGE.""",
}
# What is compiled into a wheel that names none of it: the crates whose paths stand in the library.
COMPILED_IN = {
    "llguidance": """\
        Compiled into it, under the same licence: derivre (Copyright (c) Microsoft Corporation),
        fancy-regex (Copyright 2015 The Fancy Regex Authors), fluent-uri (Copyright (c) 2021
        Scallop Ye), referencing (Copyright (c) 2020-2024 Dmitry Dygalo), tiktoken-rs (Copyright
        (c) 2023 Roger Zurawicki).
        Compiled into it, under the Apache License 2.0, whose text is in
        /usr/share/common-licenses/Apache-2.0: ahash, anyhow, base64, bit-set, bit-vec,
        crossbeam-deque, crossbeam-epoch, hashbrown, indexmap, once_cell, parking_lot,
        percent-encoding, pyo3, rand, rayon, regex, serde, serde_json, smallvec, spm_precompiled,
        tokenizers, unicode-normalization-alignments, unicode-segmentation, each by its authors.
        Compiled into it, in the public domain by the Unlicense: aho-corasick, memchr.""",
    "llama_cpp_python": """\
        Compiled into it, under the BSD 2-Clause License: xxHash (Copyright (C) 2012-2023 Yann
        Collet). Compiled into it, in the public domain: stb_image by Sean Barrett and others,
        miniaudio by David Reid, SHA-1 by Steve Reid, SHA-256 by Igor Pavlov.""",
}
# What metadata calls a licence, where it does not use SPDX's name.
SPDX_NAMES = {
    "MIT License": "MIT",
    "The BSD 2-Clause License": "BSD-2-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
}
COPYRIGHT_LINE = re.compile(r"(?i)^\W*(?:copyright\b|\(c\)|©)(.*\b(?:19|20)\d\d\b.*)$")


def main() -> int:
    """Writes the file."""
    root, wheels, ours, target = (Path(argument) for argument in sys.argv[1:5])
    parts = [ours.read_text(encoding="utf-8").rstrip()]
    others = [path for path in wheels.glob("*.whl") if not path.name.startswith("clawd-")]
    parts += [paragraph(wheel) for wheel in sorted(others)]
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    take_out_texts(root / SITE)
    return 0


def paragraph(wheel: Path) -> str:
    """Gives what is to be said of one package: whose it is, its licence, the text of it.

    Raises:
        ValueError: its wheel has neither a licence text nor the name of a known licence.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(PurePosixPath(name).parent for name in names if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode("utf-8"))
        files = sorted(name for name in names if is_license_text(PurePosixPath(name), info))
        texts = [archive.read(name).decode("utf-8", "replace") for name in files]
    name, version = str(metadata["Name"]), str(metadata["Version"])
    license_name = name_of_license(metadata)
    if not texts:
        if license_name not in KNOWN_TEXTS and license_name != "Apache-2.0":
            raise ValueError(f"{wheel.name} has no licence text, and says {license_name!r}")
        texts = [textwrap.dedent(KNOWN_TEXTS.get(license_name, ""))]
    texts += [textwrap.dedent(COMPILED_IN[name])] if name in COMPILED_IN else []
    head = [
        f"Files: vendor/{wheel.name}",
        f"Copyright: {indented(owners(texts, metadata)).strip()}",
        f"License: {label(license_name, name)}",
        f"Comment: {name} {version}, {license_name}. {homepage(metadata)}".rstrip(),
    ]
    return "\n".join(head) + "\n\n" + f"License: {label(license_name, name)}\n" + body(texts)


def is_license_text(path: PurePosixPath, info: PurePosixPath) -> bool:
    """Tells whether a file of a wheel holds a licence or a notice."""
    if info not in path.parents:
        return False
    return "licenses" in path.parts or bool(LICENSE_NAME.search(path.name))


def name_of_license(metadata: "Message[str, str]") -> str:
    """Gives the licence as its metadata names it, in SPDX's words where they are known."""
    named = metadata["License-Expression"] or metadata["License"] or ""
    if not named or "\n" in named or len(named) > 100:
        classifiers = [text for text in metadata.get_all("Classifier", []) if "License ::" in text]
        named = classifiers[0].rpartition(":: ")[2] if classifiers else "see below"
    return SPDX_NAMES.get(named, named)


def label(license_name: str, package: str) -> str:
    """Gives a short name of its own, so that each paragraph has the text that came with it."""
    words = re.sub(r"[^A-Za-z0-9.+-]+", "-", license_name).strip("-")
    return f"{words}~{package}"


def owners(texts: Sequence[str], metadata: "Message[str, str]") -> str:
    """Gives the lines that claim the copyright, or else who the metadata says wrote it."""
    found = []
    for text in texts:
        if not any(pattern.search(text) for pattern in COMMON.values()):
            found += [
                match[1] for line in text.splitlines() if (match := COPYRIGHT_LINE.match(line))
            ]
    claims = [re.sub(r"(?i)^[^\w(©]*(\(c\)|©)?\W*", "", claim).strip() for claim in found]
    lines = list(dict.fromkeys(claim for claim in claims if claim))
    if not lines:
        lines = [
            str(
                metadata["Author"]
                or metadata["Author-email"]
                or f"the authors of {metadata['Name']}"
            )
        ]
    return "\n".join(lines)


def homepage(metadata: "Message[str, str]") -> str:
    """Gives where the package comes from."""
    found = [str(metadata["Home-page"] or "")]
    found += [line.partition(", ")[2] for line in metadata.get_all("Project-URL", [])]
    return next((url for url in found if url.startswith("http")), "")


def body(texts: Sequence[str]) -> str:
    """Gives the texts, those that every Debian has by reference."""
    parts = [by_reference(text) for text in texts]
    whole = "\n".join(part.strip("\n") for part in dict.fromkeys(parts))
    return indented(whole or "The text is in /usr/share/common-licenses/Apache-2.0.")


def by_reference(text: str) -> str:
    """Gives a text with what every Debian has replaced by where it is."""
    for name, pattern in COMMON.items():
        if found := pattern.search(text):
            end = END_OF_TEXT.search(text, found.end())
            rest = text[end.end() :] if end else ""
            where = f"The text of {name} is in /usr/share/common-licenses/{name}."
            text = f"{text[: found.start()].rstrip()}\n{where}\n{rest.strip()}"
    return text


def indented(text: str) -> str:
    """Gives a text in the form of a field's continuation lines."""
    lines = (re.sub(r"[\t\f\r\x0b]", " ", line).rstrip() for line in text.splitlines())
    return "\n".join(f" {line}" if line.strip() else " ." for line in lines)


def take_out_texts(site: Path) -> None:
    """Removes the licence files, which Debian wants in one place."""
    for info in site.glob("*.dist-info"):
        shutil.rmtree(info / "licenses", ignore_errors=True)
        for path in info.iterdir():
            if path.is_file() and LICENSE_NAME.search(path.name):
                path.unlink()


if __name__ == "__main__":
    sys.exit(main())
