"""What a backup holds of a home that changes while it is made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawctl import backup_create
from clawctl.backup_create import Sources, create
from clawd.paths import layout
from tests.support.rows import each_row


def going_before(step: Callable[..., Any], gone: Path) -> Callable[..., Any]:
    """Return a step before which a file goes, as a daemon takes it away."""

    def late(file: Path, *arguments: Any) -> Any:
        if file == gone:
            gone.unlink(missing_ok=True)
        return step(file, *arguments)

    return late


@each_row("step", ["_if_plain", "_copied_or_described"])
def test_a_file_that_goes_while_the_backup_is_made_is_not_in_it(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = layout({"CLAWD_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    notes = where.home / "knowledge"
    notes.mkdir(parents=True)
    for name in ("gone.md", "stays.md"):
        (notes / name).write_text("text")
    real = getattr(backup_create, step)
    monkeypatch.setattr(backup_create, step, going_before(real, notes / "gone.md"))
    sources = Sources(
        layout=where,
        memory=where.database,
        receipts=where.receipts,
        workspace=tmp_path / "nowhere",
    )
    made = create(sources, tmp_path / "b.tar.gz", force=False, progress=lambda _done, _total: None)
    assert [each.path for each in made.manifest.files] == ["home/knowledge/stays.md"]
