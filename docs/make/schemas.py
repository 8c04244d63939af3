"""A property of a JSON schema in a few words: its type with its bounds, and its default."""

from __future__ import annotations

import json
from typing import Any

from docs.make.markdown import code

Schema = dict[str, Any]


def words(schema: Schema, link: str = "") -> str:
    """`integer, 1 to 5000`, `` `a` or `b` ``, `list of string`; shapes are links to `link` + their name in lower case."""
    if "$comment" in schema:
        return str(schema["$comment"])
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}]({link}#{name.lower()})"
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return either([code(json.dumps(value)) for value in schema["enum"]])
    if "anyOf" in schema or "oneOf" in schema:
        return either([words(part, link) for part in schema.get("anyOf") or schema["oneOf"]])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {words(schema.get('items', {}), link)}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"table of {words(values, link)}" if isinstance(values, dict) and values else "table"
    return ", ".join([kind, *bounds(schema)])


def default(schema: Schema) -> str:
    """The default as TOML and JSON write it; nothing when there is none."""
    if "default" not in schema or schema["default"] is None:
        return ""
    value = schema["default"]
    if isinstance(value, dict) and value:
        return code("{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items()) + " }")
    return code(json.dumps(value, ensure_ascii=False))


def either(parts: list[str]) -> str:
    """`a, b or c`."""
    last = parts[-1]
    return f"{', '.join(parts[:-1])} or {last}" if len(parts) > 1 else last


def bounds(schema: Schema) -> list[str]:
    """What is allowed, in words, by the keywords of JSON schema."""
    found = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        found.append(f"{low:.15g} to {high:.15g}")
    elif low is not None:
        found.append(f"at least {low:.15g}")
    if "exclusiveMinimum" in schema:
        found.append(f"above {schema['exclusiveMinimum']:.15g}")
    if "exclusiveMaximum" in schema:
        found.append(f"below {schema['exclusiveMaximum']:.15g}")
    if low is None and high is not None:
        found.append(f"at most {high:.15g}")
    if schema.get("minLength"):
        found.append("not empty")
    if "maxLength" in schema:
        found.append(f"at most {schema['maxLength']} characters")
    return found
