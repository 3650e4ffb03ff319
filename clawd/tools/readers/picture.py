"""Reading a picture by Pillow: checked, decoded, reduced and encoded anew. Runs in the sandbox.

What comes out has one frame of plain colours, no metadata, and nothing behind its end.
"""

import base64
import io
from collections.abc import Iterator
from typing import Any

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_MAX_PNG_BYTES = 1_500_000
_JPEG_QUALITY = 90


def read(job: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    """Yield `{"media_type", "width", "height", "data"}`, the data in base64, or `{"error": …}`.

    Args:
        job: `max_pixels` that a picture may have, and `longest_side` that it is made to have; with
            `raw` the data are its colours, three bytes each.
        data: the file.
    """
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # what is too large is refused here, in our words
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            width, height = image.size
            if width * height > job["max_pixels"]:
                most = job["max_pixels"] // 1_000_000
                yield {"error": f"it has {width}x{height} pixels, over {most} million"}
                return
            kind, small = image.format, _decoded(image, job["longest_side"])
    except UnidentifiedImageError:
        yield {"error": "it is no PNG, JPEG, WebP or GIF"}
        return
    except Exception as error:  # noqa: BLE001 - a hostile file breaks decoders in any way
        yield {"error": f"it cannot be decoded: {type(error).__name__} {error}".strip()[:200]}
        return
    if job.get("raw"):
        media_type, file = "", small.tobytes()
    else:
        media_type, file = encoded(small, is_lossy=kind == "JPEG")
    yield {
        "media_type": media_type,
        "width": small.width,
        "height": small.height,
        "data": base64.b64encode(file).decode(),
    }


def _decoded(image: Any, longest: int) -> Any:
    """Return the first frame, upright, on white where it is transparent, in red, green and blue."""
    from PIL import Image, ImageOps

    if image.format == "JPEG":
        image.draft("RGB", (longest, longest))  # large ones are decoded at a part of their size
    image.load()
    upright = ImageOps.exif_transpose(image)
    upright.info.clear()
    if upright.mode.startswith(("I", "F")):  # 16 bits and more of grey
        upright = upright.convert("I").point(lambda value: value / 256).convert("L")
    if upright.has_transparency_data or "A" in upright.getbands():
        seen = upright.convert("RGBA")
        upright = Image.new("RGBA", seen.size, "white")
        upright.alpha_composite(seen)
    plain = upright.convert("RGB")
    plain.thumbnail((longest, longest))
    return plain


def encoded(image: Any, *, is_lossy: bool) -> tuple[str, bytes]:
    """Return type and bytes: PNG, but JPEG of what came as one or would be large."""
    out = io.BytesIO()
    if not is_lossy:
        image.save(out, "PNG")
        if out.tell() <= _MAX_PNG_BYTES:
            return "image/png", out.getvalue()
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_JPEG_QUALITY)
    return "image/jpeg", out.getvalue()
