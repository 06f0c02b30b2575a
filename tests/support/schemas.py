"""A check of plain data against as much of JSON Schema as the report's schema uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
ANNOTATIONS = {"$schema", "$defs", "title", "description"}
CHECKED = {
    *("$ref", "const", "enum", "type"),
    *("required", "properties", "additionalProperties", "items"),
}


def violations(
    value: Any, schema: dict[str, Any], root: dict[str, Any], place: str = "report"
) -> Iterator[str]:
    """Every place where a value is not what the schema says."""
    assert schema.keys() <= ANNOTATIONS | CHECKED, schema.keys()
    if "$ref" in schema:
        yield from violations(value, resolved(schema["$ref"], root), root, place)
    if "const" in schema and value != schema["const"]:
        yield f"{place} is {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r}"
    if "type" in schema and not has_type(value, schema["type"]):
        yield f"{place} is {type(value).__name__}"
    if isinstance(value, dict):
        yield from (
            f"{place} lacks {key}"
            for key in schema.get("required", ())
            if key not in value
        )
        known, others = (
            schema.get("properties", {}),
            schema.get("additionalProperties", {}),
        )
        for key, item in value.items():
            rule = known.get(key, others)
            if rule is False:
                yield f"{place} has {key}"
            else:
                yield from violations(item, rule, root, f"{place}.{key}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], root, f"{place}[{index}]")


def resolved(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found = root
    for key in reference.removeprefix("#").split("/")[1:]:
        found = found[key]
    return found


def has_type(value: Any, names: str | list[str]) -> bool:
    names = [names] if isinstance(names, str) else names
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, TYPES[name]) for name in names)
