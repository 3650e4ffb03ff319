"""Pictures as anybody may send them: taken within limits, or refused in words."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin

from clawd.errors import InvalidRequestError
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools import pictures
from clawd.tools.pictures import LONGEST_SIDE, Pictures
from clawd.tools.reader import Reader, Reading
from clawd.wire.pictures import MAX_PICTURE_BYTES, Picture
from tests.support.pictures import chunk, png

SCRIPT = b"=1;alert(document.domain)//"
SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><rect width="9" height="9"/></svg>'
)


@pytest.fixture
def taking(tmp_path: Path) -> Pictures:
    return Pictures(Sandbox(SandboxSettings(home=tmp_path)))


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def plain(mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> Image.Image:
    return Image.effect_noise(size, 60).convert("L").convert(mode)


def claimed(width: int, height: int, *, data: bytes = b"") -> bytes:
    """Return a PNG that says it is so large."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def gif(frames: int) -> bytes:
    """Return an animation of one pixel, by hand: no encoder is waited for."""
    frame = (
        b"\x21\xf9\x04\x00\x01\x00\x00\x00"
        b"\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00"
        b"\x02\x02\x44\x01\x00"
    )
    head = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff"
    return head + frame * frames + b"\x3b"


def text_bomb() -> bytes:
    """Return a PNG with a text chunk that unpacks to 64 MiB."""
    packed = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(64 << 20)))
    whole = png(2, 2)
    return whole[:33] + packed + whole[33:]


def profiled() -> bytes:
    return saved(plain(), "PNG", icc_profile=b"\0" * 200_000)


def described() -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "the password is hunter2")
    return saved(plain(), "PNG", pnginfo=info)


def rotated() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    exif[0x010F] = "GPS 52.5 13.4 hunter2"
    return saved(plain(), "JPEG", exif=exif)


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "empty"),
    "one byte": (lambda: b"\x89", "no PNG"),
    "zeros": (lambda: bytes(5_000), "no PNG"),
    "text": (lambda: b"this is a picture", "no PNG"),
    "svg": (lambda: SVG, "no PNG"),
    "svg after xml": (lambda: b'<?xml version="1.0"?>' + SVG, "no PNG"),
    "html": (lambda: b"<html><img src=x onerror=alert(1)>", "no PNG"),
    "pdf": (lambda: b"%PDF-1.7\n1 0 obj<<>>endobj", "no PNG"),
    "zip": (lambda: b"PK\x03\x04" + bytes(200), "no PNG"),
    "elf": (lambda: b"\x7fELF" + bytes(200), "no PNG"),
    "postscript": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no PNG"),
    "bmp": (lambda: saved(plain(), "BMP"), "no PNG"),
    "tiff": (lambda: saved(plain(), "TIFF"), "no PNG"),
    "ico": (lambda: saved(plain(), "ICO"), "no PNG"),
    "ppm": (lambda: saved(plain(), "PPM"), "no PNG"),
    "over 20 MB": (lambda: png(2, 2) + bytes(MAX_PICTURE_BYTES), "bytes"),
    "100 MP that are there": (lambda: claimed(10_000, 10_000, data=bytes(1000)), "million"),
    "a bomb of 2^62 pixels": (lambda: claimed(2**31 - 1, 2**31 - 1), "million"),
    "one line of 21 MP": (lambda: claimed(21_000_000, 1), "million"),
    "a gif of 65535²": (
        lambda: b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b"\x2c" + bytes(12),
        "million",
    ),
    "no width": (lambda: claimed(0, 5), "decoded|no PNG"),
    "truncated png": (lambda: png(300, 300)[:60], "decoded|no PNG"),
    "truncated jpeg": (lambda: saved(plain(size=(400, 400)), "JPEG")[:4_000], "decoded"),
    "truncated webp": (lambda: saved(plain(), "WEBP")[:60], "decoded|no PNG"),
    "a png of its mark alone": (lambda: b"\x89PNG\r\n\x1a\n", "decoded|no PNG"),
    "a jpeg of its mark alone": (lambda: b"\xff\xd8\xff\xe0", "decoded|no PNG"),
    "a gif of its head alone": (lambda: b"GIF89a\x05\0\x05\0\0\0\0", "decoded|no PNG"),
    "wrong checksum": (lambda: png(9, 9)[:29] + b"\0\0\0\0" + png(9, 9)[33:], "decoded|no PNG"),
    "text that unpacks to 64 MiB": (text_bomb, "decoded|no PNG"),
    "gif and script": (lambda: b"GIF89a/*" + bytes(20) + b"*/" + SCRIPT, "."),
}
TAKEN: dict[str, tuple[Callable[[], bytes], tuple[int, int]]] = {
    "1 px": (lambda: png(1, 1), (1, 1)),
    "a line": (lambda: png(5_000, 1), (1_568, 1)),
    "16 MP": (lambda: claimed(4_000, 4_000, data=(b"\0" + bytes(4_000)) * 4_000), (1_568, 1_568)),
    "gif": (lambda: saved(plain("P"), "GIF"), (40, 30)),
    "webp": (lambda: saved(plain(), "WEBP"), (40, 30)),
    "10,000 frames": (lambda: gif(10_000), (1, 1)),
    "cmyk": (lambda: saved(plain("CMYK"), "JPEG"), (40, 30)),
    "grey": (lambda: saved(plain("L"), "JPEG"), (40, 30)),
    "progressive": (lambda: saved(plain(), "JPEG", progressive=True), (40, 30)),
    "16 bits": (lambda: saved(plain("I;16"), "PNG"), (40, 30)),
    "one bit": (lambda: saved(plain("1"), "PNG"), (40, 30)),
    "grey and alpha": (lambda: saved(plain("LA"), "PNG"), (40, 30)),
    "profile of zeros": (profiled, (40, 30)),
    "png and zip": (lambda: png(7, 5) + b"PK\x03\x04<script>hunter2", (7, 5)),
    "gif and html": (lambda: gif(1) + b"<script>hunter2</script>", (1, 1)),
    "text within": (described, (40, 30)),
    "on its side": (rotated, (30, 40)),
}


@pytest.mark.sandbox
@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_picture_within_the_limits_is_refused(taking: Pictures, name: str) -> None:
    make, why = REFUSED[name]
    with pytest.raises(InvalidRequestError, match=why) as caught:
        await taking.read(make(), "messages[0].content[1]")
    assert caught.value.message.startswith("messages[0].content[1] is not taken: ")


@pytest.mark.sandbox
@pytest.mark.parametrize("name", TAKEN)
async def test_what_is_taken_is_bounded_and_has_nothing_hidden_in_it(
    taking: Pictures, name: str
) -> None:
    make, size = TAKEN[name]
    found = await taking.read(make(), "x")
    assert (found.width, found.height) == size
    with Image.open(io.BytesIO(found.data)) as image:
        assert (image.size, image.mode) == (size, "RGB")
        assert Image.MIME[image.format or ""] == found.media_type
        assert getattr(image, "n_frames", 1) == 1
        assert not image.getexif()
    assert max(size) <= LONGEST_SIDE
    assert b"hunter2" not in found.data
    assert b"script" not in found.data


def test_the_table_has_more_than_forty_rows() -> None:
    assert len(REFUSED) + len(TAKEN) >= 40


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("image", "colour"),
    [
        (Image.new("I;16", (4, 4), 0x8080), (128, 128, 128)),
        (Image.new("RGBA", (4, 4), (255, 0, 0, 0)), (255, 255, 255)),
        (Image.new("RGBA", (4, 4), (10, 20, 30, 255)), (10, 20, 30)),
    ],
    ids=["16 bits", "transparent", "opaque"],
)
async def test_colours_stay_and_white_is_behind_what_is_transparent(
    taking: Pictures, image: Image.Image, colour: tuple[int, int, int]
) -> None:
    found = await taking.read(saved(image, "PNG"), "x")
    with Image.open(io.BytesIO(found.data)) as shown:
        assert shown.getpixel((2, 2)) == colour


@pytest.mark.sandbox
async def test_a_preview_has_the_colours_alone_and_is_small(taking: Pictures) -> None:
    image = Image.new("RGBA", (400, 100), (10, 20, 30, 255))
    found = await taking.preview(saved(image, "PNG"), 40)
    assert (found.width, found.height) == (40, 10)
    assert found.pixels == bytes((10, 20, 30)) * 400
    for data, why in ((SVG, "no PNG"), (b"", "empty"), (claimed(10_000, 10_000), "million")):
        with pytest.raises(InvalidRequestError, match=why):
            await taking.preview(data, 40)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"width": 2, "height": 1, "data": "AAAA"},
        {"width": 0, "height": 1, "data": ""},
        {"width": 41, "height": 1, "data": "AAAA" * 41},
        {"width": -1, "height": -1, "data": "AAAA"},
        {"width": 1, "height": 1, "data": "%"},
    ],
)
async def test_what_a_broken_in_child_says_of_colours_is_not_believed(
    taking: Pictures, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    async def read(_self: Reader, _job: object, _data: bytes) -> Reading:
        return Reading(answers=[answer])

    monkeypatch.setattr(Reader, "read", read)
    with pytest.raises(InvalidRequestError, match="cannot be decoded"):
        await taking.preview(b"any", 40)


@pytest.mark.sandbox
async def test_a_photograph_becomes_a_jpeg_of_bounded_size(taking: Pictures) -> None:
    noise = Image.merge("RGB", [Image.effect_noise((1_600, 900), 90) for _ in "rgb"])
    found = await taking.read(saved(noise, "PNG", compress_level=1), "x")
    assert found.media_type == "image/jpeg"
    assert len(found.data) < 3 << 20


async def test_a_picture_of_late_is_not_decoded_again(
    taking: Pictures, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def decoded(_self: Pictures, data: bytes, _what: str) -> Picture:
        asked.append(data)
        return Picture(media_type="image/png", data=data, sha256="", width=1, height=1)

    monkeypatch.setattr(Pictures, "_decoded", decoded)
    monkeypatch.setattr(pictures, "MAX_RECENT_BYTES", 3)
    for data in (b"a", b"b", b"a", b"ccc", b"a"):
        assert (await taking.read(data, "x")).data == data
    assert asked == [b"a", b"b", b"ccc", b"a"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"media_type": "image/svg+xml", "width": 1, "height": 1, "data": "AAAA"},
        {"media_type": "image/png", "width": 1, "height": 1, "data": "AAAA"},
        {"media_type": "image/png", "width": 9_999, "height": 1, "data": "iVBORw0KGgo="},
        {"media_type": "image/png", "width": 0, "height": 1, "data": "iVBORw0KGgo="},
        {"media_type": "image/png", "width": "x", "height": 1, "data": "iVBORw0KGgo="},
        {"media_type": "image/png", "width": 1, "height": 1, "data": "%"},
    ],
)
async def test_what_a_broken_in_child_says_is_not_believed(
    taking: Pictures, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    async def read(_self: Reader, _job: object, _data: bytes) -> Reading:
        return Reading(answers=[answer])

    monkeypatch.setattr(Reader, "read", read)
    with pytest.raises(InvalidRequestError, match="cannot be decoded"):
        await taking.read(b"any", "x")
