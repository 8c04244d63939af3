"""The configuration reference and the JSON schema, both from the settings tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from docs.make.markdown import code, one_line, table, whole
from docs.make.schemas import default, words
from streameval.settings.tree import Settings

_INTRODUCTION = """\
[configuration.md](../configuration.md) says how to write the file, with examples. Every key is also
`STREAMEVAL_SECTION__KEY` in the environment. A duration is `"250ms"`, `"30s"`, `"5m"`, `"24h"` or `"7d"`; a size is
`"512MB"`, `"2GiB"` or a number of bytes. [streameval.schema.json](streameval.schema.json) is the same for editors.
"""


def page() -> str:
    """The Markdown of every section and key."""
    tree = Settings.model_json_schema()
    shapes = tree["$defs"]
    text = []
    for section, schema in tree["properties"].items():
        several = schema.get("type") == "array"
        if "oneOf" in (of_kinds := schema["items"] if several else schema):
            heading = f"## `[[{section}]]`" if several else f"## `[{section}]`"
            more = " Repeat the table for more." if several else ""
            text += [f"{heading}\n\n{schema['description']}{more}\n\n", *_kinds(of_kinds, shapes)]
            continue
        shape = shapes[(schema["items"] if several else schema)["$ref"].rsplit("/", 1)[-1]]
        if several:
            text += [
                f"## `[[{section}]]`\n\n{schema['description']} Repeat the table for more.\n\n",
                _keys(shape, shapes),
            ]
            continue
        text += [f"## `[{section}]`\n\n{one_line(shape['description'])}\n\n", _keys(shape, shapes)]
        for key, value in shape["properties"].items():
            reference = _table(value)
            if reference is not None:
                inner = shapes[reference.rsplit("/", 1)[-1]]
                name = f"[{section}.{key}]" if "$ref" in value else f"[[{section}.{key}]]"
                text += [f"### `{name}`\n\n{one_line(inner['description'])}\n\n", _keys(inner, shapes)]
    return whole("Configuration: every key", _INTRODUCTION, text)


def schema() -> str:
    """The JSON schema of the TOML file."""
    tree = Settings.model_json_schema()
    tree |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "streameval.toml"}
    tree.pop("description")
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _kinds(schema: dict[str, Any], shapes: dict[str, Any]) -> Iterator[str]:
    for kind, reference in schema["discriminator"]["mapping"].items():
        shape = shapes[reference.rsplit("/", 1)[-1]]
        yield f'### `kind = "{kind}"`\n\n{one_line(shape["description"])}\n\n'
        yield _keys(shape, shapes)


def _table(value: dict[str, Any]) -> str | None:
    """The shape of a key that is a table, or a list of tables; None: it is neither."""
    found: str | None = value.get("$ref", value.get("items", {}).get("$ref"))
    return found


def _keys(shape: dict[str, Any], shapes: dict[str, Any]) -> str:
    required = {*shape.get("required", ()), *(key for key, value in shape["properties"].items() if "const" in value)}
    return table(
        ("key", "type", "default", "meaning"),
        (
            (
                code(key),
                words(value)
                if _table(value) is None
                else "table, see below"
                if "$ref" in value
                else "tables, see below",
                "required" if key in required else default(value) or "`{}`",
                value["description"],
            )
            for key, value in shape["properties"].items()
        ),
    )
