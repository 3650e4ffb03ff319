"""PDF files, written by hand, good and bad."""

import functools
import zlib


def _object(number: int, body: bytes) -> bytes:
    return b"%d 0 obj\n%s\nendobj\n" % (number, body)


def _stream(number: int, data: bytes, more: bytes = b"") -> bytes:
    head = b"<< /Length %d %s >>" % (len(data), more)
    return _object(number, head + b"\nstream\n" + data + b"\nendstream")


def _file(objects: list[bytes], trailer: bytes = b"") -> bytes:
    out, offsets = b"%PDF-1.7\n", []
    for each in objects:
        offsets.append(len(out))
        out += each
    table = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    table += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    end = b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n"
    return out + table + end % (size, trailer, len(out))


def tiny_pdf(
    pages: list[str], *, contents: tuple[bytes, bytes] | None = None, title: str = ""
) -> bytes:
    """Return a document with these lines of text, one a page.

    Args:
        pages: their texts.
        contents: the bytes of every page's stream, and what its dictionary says of them.
        title: of the document.
    """
    count = len(pages)
    kids = b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(count))
    info = b"<< /Title (%s) >>" % title.encode()
    objects = [
        _object(1, b"<< /Type /Catalog /Pages 2 0 R >>"),
        _object(2, b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count)),
        _object(3, b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"),
    ]
    for i, text in enumerate(pages):
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R"
        page += b" /Resources << /Font << /F1 3 0 R >> >> >>"
        objects.append(_object(4 + 2 * i, page % (5 + 2 * i)))
        drawn = b"BT /F1 12 Tf 50 700 Td (%s) Tj ET" % text.encode()
        data, more = contents or (drawn, b"")
        objects.append(_stream(5 + 2 * i, data, more))
    number = len(objects) + 1
    return _file([*objects, _object(number, info)], b"/Info %d 0 R" % number)


def scanned_pdf(shades: list[int]) -> bytes:
    """Return a document without text: on each page a picture of one grey, over the whole page."""
    count = len(shades)
    kids = b" ".join(b"%d 0 R" % (3 + 3 * i) for i in range(count))
    objects = [
        _object(1, b"<< /Type /Catalog /Pages 2 0 R >>"),
        _object(2, b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, count)),
    ]
    picture = b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray"
    for i, shade in enumerate(shades):
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R"
        page += b" /Resources << /XObject << /I %d 0 R >> >> >>"
        objects += [
            _object(3 + 3 * i, page % (4 + 3 * i, 5 + 3 * i)),
            _stream(4 + 3 * i, b"q 600 0 0 800 0 0 cm /I Do Q"),
            _stream(5 + 3 * i, bytes([shade]), picture + b" /BitsPerComponent 8"),
        ]
    return _file(objects)


@functools.cache
def bomb() -> bytes:
    """Return one whose page unpacks to far more than any memory limit."""
    data = zlib.compress(zlib.compress(bytes(1 << 30), 9), 9)
    return tiny_pdf(["x"], contents=(data, b"/Filter [/FlateDecode /FlateDecode]"))


def looping_tree() -> bytes:
    """Return one whose pages contain themselves."""
    return _file(
        [
            _object(1, b"<< /Type /Catalog /Pages 2 0 R >>"),
            _object(2, b"<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 2 >>"),
            _object(3, b"<< /Type /Pages /Kids [2 0 R] /Count 1 /Parent 2 0 R >>"),
        ]
    )


def nested_arrays() -> bytes:
    """Return one with arrays in arrays, deeper than any stack."""
    deep = b"[" * 200_000 + b"]" * 200_000
    return _file(
        [
            _object(1, b"<< /Type /Catalog /Pages 2 0 R /Deep %s >>" % deep),
            _object(2, b"<< /Type /Pages /Kids [] /Count 0 >>"),
        ]
    )


def lying_count() -> bytes:
    """Return one that claims a billion pages."""
    return tiny_pdf(["only one"]).replace(b"/Count 1 ", b"/Count 999999999 ")


def endless_text() -> bytes:
    """Return one whose page takes for ever: a small stream of a great many drawing commands."""
    drawn = b"BT /F1 12 Tf " + b"(x) Tj 1 0 Td " * 3_000_000 + b"ET"
    return tiny_pdf(["x", "y"], contents=(zlib.compress(drawn, 9), b"/Filter /FlateDecode"))
