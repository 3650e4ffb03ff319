"""PDFs from the command line to the model: their text, their pages, what is refused."""

import re
from pathlib import Path

import pytest

from tests.support.home import Home
from tests.tools.builtin.tiny_pdf import scanned_pdf, tiny_pdf

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox, pytest.mark.timeout(300)]

BLIND = '[providers.models.blind]\nkind = "openai-compatible"\n'
BLIND += 'base_url = "http://127.0.0.1:9/v1"\nmodel = "text-only"\n'
WEB = "[web]\nmax_pdf_pages = 2\nextract_timeout_s = 100\n"


def test_a_document_goes_with_a_message(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.configure({"text": "{{last_user}} {{pictures}}"}, tables=BLIND + WEB)
    (tmp_path / "paper.pdf").write_bytes(tiny_pdf(["first words", "second", "third"]))
    (tmp_path / "scan.pdf").write_bytes(scanned_pdf([40, 200]))
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\nrubbish")
    paper, scan = str(tmp_path / "paper.pdf"), str(tmp_path / "scan.pdf")
    try:
        home.start()
        read = home.json("agent", "--attach", paper, "-m", "what is in it?")
        head = (
            "what is in it?\n\n[document paper.pdf]\n```\npages: 3\n\n--- page 1 ---\nfirst words"
        )
        assert head in read["text"]
        assert "[of paper.pdf pages 3 are left out]" in read["text"]
        assert "third" not in read["text"]
        (line,) = home.json("conversation", "list")
        assert line["untrusted_sources"] == ["paper.pdf"]
        shown = home.ctl("agent", "--attach", scan, "-m", "and here?")
        assert len(re.findall(r"image/jpeg 1176x1568", shown.stdout)) == 2
        assert "scan.pdf has no text: the model is shown 2 of its pages" in shown.stderr
        for path, why, more in (
            (scan, "scan.pdf has no text, only pictures of pages, and the model sees none",
             ("--provider", "blind")),
            (str(tmp_path / "broken.pdf"), "broken.pdf: broken: ", ()),
        ):  # fmt: skip
            refused = home.ctl("agent", "--attach", path, "-m", "go", *more)
            assert refused.returncode == 1
            assert why in refused.stderr
        assert home.json("receipt", "verify")["ok"]
    finally:
        home.close()
