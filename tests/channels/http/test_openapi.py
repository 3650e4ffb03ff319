"""The OpenAPI document: every route, no other, and nothing that leads nowhere."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawd.channels.http.app import needs_of
from clawd.service.http import routes_of
from tests.channels.http.rig import Served, served


async def document(door: Served) -> Any:
    status, found = await door.get("/openapi.json")
    assert status == 200
    return found


def plain(path: str) -> str:
    """Return a path as its resource writes it: without what a place may hold."""
    return re.sub(r"\{(\w+):[^{}]*\}", r"{\1}", path)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(found := value.get("$ref"), str):
            yield found
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


async def test_every_route_is_in_the_document_and_the_other_way_round(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        found = await document(door)
        told = {(method.upper(), path) for path, item in found["paths"].items() for method in item}
        every = {(route.method, plain(route.path)) for route in routes_of()}
        assert told == {(method, path) for method, path in every if method != "*"}


async def test_every_reference_leads_to_a_schema(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        found = await document(door)
        targets = set(references(found))
        assert "#/components/schemas/ToolOutcome" in targets
        for target in targets:
            value: Any = found
            for part in target.removeprefix("#/").split("/"):
                value = value[part]
            assert isinstance(value, dict), target


async def test_operations_are_complete_and_have_names_of_their_own(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        found = await document(door)
        assert found["openapi"] == "3.1.0" and found["info"]["version"]
        operations = [
            (path, method, operation)
            for path, item in found["paths"].items()
            for method, operation in item.items()
        ]
        names = [operation["operationId"] for _, _, operation in operations]
        assert len(set(names)) == len(names)
        for path, method, operation in operations:
            assert operation["summary"], path
            placed = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert all(f"{{{name}}}" in path for name in placed)
            assert path.count("{") == len(placed)
            needs = needs_of(method.upper(), path)
            assert (operation["security"] == []) is (needs is None)
            assert operation.get("x-clawd-scopes", []) == sorted(needs or ())


async def test_an_answer_fits_the_schema_that_the_document_has_for_it(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        schemas = (await document(door))["components"]["schemas"]
        _, outcome = await door.post("/tools/time/run", {})
        assert set(schemas["ToolOutcome"]["required"]) <= set(outcome)
        assert set(outcome) <= set(schemas["ToolOutcome"]["properties"])
        _, status = await door.get("/status")
        assert set(status) == set(schemas["StatusReport"]["properties"])
        for path, body in (("/infill", "InfillBody"), ("/v1/rerank", "RerankBody")):
            operation = (await document(door))["paths"][path]["post"]
            wanted = operation["requestBody"]["content"]["application/json"]["schema"]
            assert wanted == {"$ref": f"#/components/schemas/{body}"}
            assert operation["x-clawd-scopes"] == ["models"]
        assert schemas["InfillBody"]["required"] == ["input_prefix", "input_suffix"]
        assert schemas["RerankBody"]["required"] == ["query", "documents"]
        assert json.dumps(schemas["RunBody"]).count("arguments")
        assert schemas["RunBody"]["additionalProperties"] is False
