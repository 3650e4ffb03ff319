"""The Grafana dashboard that ships asks for numbers that the daemon has, and shows them all."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.channels.http.app import RequestCounts
from clawd.channels.http.metrics import families_of
from clawd.wire.daemon import MetricFamily
from tests.support.inprocess import daemon_in

ROOT = Path(__file__).parents[2]
# Shown by the newest numbers of the local engine (llamacpp:…), or told by another panel.
NOT_SHOWN = {
    "clawd_model_loaded",
    "llamacpp:prompt_tokens_seconds",
    "llamacpp:predicted_tokens_seconds",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
}
NAME = re.compile(r"\b((?:clawd_|llamacpp:)[a-z_]+)(?=\{)")
GROUPED = re.compile(r"by \(([^)]*)\)[^{]*?((?:clawd_|llamacpp:)[a-z_]+)\{")


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads((ROOT / "etc" / "grafana" / "clawd.json").read_text())


def panels(dashboard: Any) -> Iterator[Any]:
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def asked(dashboard: Any) -> list[str]:
    return [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]


async def reported(tmp_path: Path) -> dict[str, MetricFamily]:
    async with daemon_in(tmp_path) as inside:
        report = await inside.daemon.metrics.report()
    return {family.name: family for family in (*report.families, *families_of(RequestCounts()))}


async def test_every_number_that_is_asked_for_is_there(dashboard: Any, tmp_path: Path) -> None:
    known = await reported(tmp_path)
    for expression in asked(dashboard):
        names = NAME.findall(expression)
        assert names, expression
        for name in names:
            histogram = known.get(name.removesuffix("_bucket"))
            family = known.get(name) or histogram
            assert family is not None, name
            assert (family.kind == "histogram") == name.endswith("_bucket"), name


async def test_every_number_is_shown(dashboard: Any, tmp_path: Path) -> None:
    shown = {name.removesuffix("_bucket") for e in asked(dashboard) for name in NAME.findall(e)}
    assert set(await reported(tmp_path)) - shown == NOT_SHOWN


def test_labels_that_are_grouped_by_are_documented(dashboard: Any) -> None:
    documented = (ROOT / "docs" / "service.md").read_text()
    for expression in asked(dashboard):
        for labels, name in GROUPED.findall(expression):
            wanted = set(labels.replace(" ", "").split(",")) - {"le"}
            found = re.search(rf"`{re.escape(name)}{{([a-z,]*)}}`", documented)
            assert wanted <= set(found[1].split(",") if found else ()), (name, wanted)


def test_counters_are_rates_and_gauges_are_not(dashboard: Any) -> None:
    for expression in asked(dashboard):
        counted = re.findall(r"(\w+\()?[a-z_:]+_total\{", expression)
        assert all(word in {"rate(", "increase("} for word in counted), expression


def test_panels_stand_side_by_side_and_have_ids_of_their_own(dashboard: Any) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_it_names_no_data_source_of_ours(dashboard: Any) -> None:
    sources = {target["datasource"]["uid"] for p in panels(dashboard) for target in p["targets"]}
    assert sources == {"${datasource}"}
