"""The configuration reference and the JSON schema, both from the settings tree."""

from __future__ import annotations

import json
from typing import Any

from docs.make.markdown import code, one_line, table, whole
from docs.make.schemas import default, words
from streameval.config import Settings

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
        if section == "models":
            text.append(_models(schema, shapes))
            continue
        shape = shapes[schema["$ref"].rsplit("/", 1)[-1]]
        text += [f"## `[{section}]`\n\n{one_line(shape['description'])}\n\n", _keys(shape, shapes)]
        for key, value in shape["properties"].items():
            if "$ref" in value:
                inner = shapes[value["$ref"].rsplit("/", 1)[-1]]
                text += [f"### `[{section}.{key}]`\n\n{one_line(inner['description'])}\n\n", _keys(inner, shapes)]
    return whole("Configuration: every key", _INTRODUCTION, text)


def schema() -> str:
    """The JSON schema of the TOML file."""
    tree = Settings.model_json_schema()
    tree |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "streameval.toml"}
    tree.pop("description")
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _models(schema: dict[str, Any], shapes: dict[str, Any]) -> str:
    text = [f"## `[[models]]`\n\n{schema['description']} Repeat the table for more.\n\n"]
    for kind, reference in schema["items"]["discriminator"]["mapping"].items():
        shape = shapes[reference.rsplit("/", 1)[-1]]
        text += [f'### `kind = "{kind}"`\n\n{one_line(shape["description"])}\n\n', _keys(shape, shapes)]
    return "".join(text)


def _keys(shape: dict[str, Any], shapes: dict[str, Any]) -> str:
    required = {*shape.get("required", ()), *(key for key, value in shape["properties"].items() if "const" in value)}
    return table(
        ("key", "type", "default", "meaning"),
        (
            (
                code(key),
                "table, see below" if "$ref" in value else words(value),
                "required" if key in required else default(value) or "`{}`",
                value["description"],
            )
            for key, value in shape["properties"].items()
        ),
    )
