"""Manifests of any shape: a readable refusal or sound tools, and nothing else ever comes out."""

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError
from clawd.plugins.files import PluginFile, PluginTree
from clawd.plugins.loader import reach_of, secrets_in
from clawd.plugins.manifest import manifest_of
from clawd.tools.external_manifest import JsonFileError, ManifestRules, read_manifest, warnings_of

ROOT = Path(__file__).parents[2]
EXTERNAL = (ROOT / "etc/external-tools/CLAWD-archive.tools").read_text()
PLUGIN = (ROOT / "etc/plugins/outline/manifest.toml").read_text()
PIECES = st.sampled_from(
    [
        '"', "{", "}", "[", "]", ",", ":", "\n", "\\ud800", "\\u0000", "1e999", "-", "9" * 5000,
        "null", "true", "NaN", "{archive}", "inf", "2026-11-21", "=", "'", "[[tools]]", "\x1b[2J",
    ]
) | st.text(max_size=4)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Return the text with a few pieces put in, taken out or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(PIECES) + text[end:]
    return text


@given(damaged(EXTERNAL))
def test_a_damaged_manifest_of_tools_is_refused_or_sound(text: str) -> None:
    try:
        specs = read_manifest(text, Path("/m/CLAWD-m.tools"), ManifestRules())
    except JsonFileError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert error.reason
        return
    for spec in specs:
        assert msgspec.json.decode(msgspec.json.encode(spec.schema())) == spec.schema()
        assert all(warnings_of(spec))
        assert msgspec.msgpack.encode(spec.schema())
        assert msgspec.msgpack.encode((spec.name, spec.description, spec.argv))


@given(damaged(PLUGIN))
def test_a_damaged_manifest_of_a_plugin_is_refused_or_sound(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    files = (
        PluginFile(path="manifest.toml", mode=0o600, data=data),
        PluginFile(path="outline.py", mode=0o700, data=b"#!/bin/sh\n"),
    )
    try:
        manifest = manifest_of(PluginTree(files=files))
    except InvalidRequestError as error:
        assert error.message.startswith("manifest.toml: ")
        return
    assert msgspec.msgpack.encode(manifest)
    assert all(reach_of(manifest))
    assert isinstance(secrets_in(PluginTree(files=files)), tuple)
