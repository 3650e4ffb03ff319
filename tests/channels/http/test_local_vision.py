"""A model of this machine sees what the doors take: tokens, answers and listings say so."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.channels.http.local_models import LOCAL
from tests.channels.http.rig import served
from tests.support.pictures import png
from tests.support.projectors import write_pair

pytestmark = [pytest.mark.real_model, pytest.mark.vision, pytest.mark.sandbox]

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
CELLS = 16  # of any picture, to the projector that is written here


def asked(*pictures: bytes) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What is it?"}]
    for data in pictures:
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    said = [{"role": "user", "content": parts}]
    return {"model": "mlp", "messages": said, "max_tokens": 3, "temperature": 0}


async def test_a_local_model_with_a_projector_sees(tmp_path: Path) -> None:
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True, mode=0o700)
    models.parent.chmod(0o700)
    write_pair(models, "mlp", template=TEMPLATE)
    alone = {"X-Clawd-Inject": "off"}
    async with served(tmp_path, tables=LOCAL.format(ctx_size=2048)) as door:
        counts = []
        for pictures in ((), (png(40, 32),), (png(40, 32), png(9, 9, shade=200))):
            status, told = await door.post("/v1/chat/completions", asked(*pictures), **alone)
            assert status == 200, told
            counts.append(told["usage"]["prompt_tokens"])
        assert [count - counts[0] for count in counts] == [0, CELLS, 2 * CELLS]
        listed = {each["id"]: each for each in (await door.get("/v1/models"))[1]["data"]}
        assert "vision" in listed["mlp"]["capabilities"]
        assert "vision" not in listed["embedded"]["capabilities"]
        _, shown = await door.post("/api/show", {"model": "mlp"})
        assert "vision" in shown["capabilities"]
