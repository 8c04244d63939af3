"""Settings from a TOML file and the environment, and back to TOML.

Order of precedence: environment (`STREAMEVAL_SECTION__KEY`), then the TOML file, then the defaults of `config`. Every
error names the key, the value and the fix.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streameval.settings.models import MODELS
from streameval.settings.outlets import NOTIFIERS, SINKS
from streameval.settings.section import PATTERNS
from streameval.settings.sources import SOURCES
from streameval.settings.tree import ConfigError, Settings

ENV_PREFIX = "STREAMEVAL_"
# no settings: the server's token, which `config show` must not print, and switches of the tests
ENV_RESERVED = {
    "STREAMEVAL_TOKEN",
    "STREAMEVAL_TEST_KAFKA",
    "STREAMEVAL_TEST_REGISTRY",
    "STREAMEVAL_REQUIRE_ALL",
}


def load(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from an optional TOML file and the environment.

    Raises ConfigError with one line per problem.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            tree = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file; give the path of a TOML file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from None
    _overlay_environment(tree, environ or {})
    return validate(tree)


def validate(tree: Mapping[str, Any]) -> Settings:
    """Settings from a tree of plain values, as a file holds them. Raises ConfigError with one line per problem."""
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem) for problem in error.errors())) from None


def to_toml(settings: Settings) -> str:
    """The effective settings as TOML that `load` reads back."""
    tree = settings.model_dump(mode="json")
    lines: list[str] = []
    tables = {section: tree.pop(section) for section in [*tree] if isinstance(tree[section], list)}
    for section, values in tree.items():
        lines += [f"[{section}]", *(_toml_line(k, v) for k, v in values.items() if not isinstance(v, dict))]
        for key, value in values.items():
            if isinstance(value, dict) and value:
                lines += [f"[{section}.{key}]", *(_toml_line(k, v) for k, v in value.items())]
        lines.append("")
    for section, several in tables.items():
        for one in several:
            lines += [f"[[{section}]]", *(_toml_line(k, v) for k, v in one.items()), ""]
    return "\n".join(lines)


def _toml_line(key: str, value: object) -> str:
    return f"{key if re.fullmatch(r'[A-Za-z0-9_-]+', key) else _toml_string(key)} = {_toml_value(value)}"


def _toml_value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(_toml_line(k, v) for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return _toml_string(value) if isinstance(value, str) else json.dumps(value)


def _toml_string(text: str) -> str:
    # as JSON, but TOML knows no surrogate pairs, and wants DEL escaped
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _overlay_environment(tree: dict[str, Any], environ: Mapping[str, str]) -> None:
    for name, text in sorted(environ.items()):
        if not name.startswith(ENV_PREFIX) or name in ENV_RESERVED:
            continue
        path = name.removeprefix(ENV_PREFIX).lower().split("__")
        if len(path) < 2:
            raise ConfigError(
                f'{name} = "{_masked(name, text)}": must name a section and a key, for example {ENV_PREFIX}JOIN__ATTRIBUTION_WINDOW'
            )
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(
                    f'{name} = "{_masked(name, text)}": "{part}" is no section in the TOML file; write it as [{part}]'
                )
        node[path[-1]] = _environment_value(path, text)


def _environment_value(path: list[str], text: str) -> object:
    """Lists, tables, numbers and booleans are written as TOML values; anything else is a string."""
    try:
        parsed = tomllib.loads(f"v = {text}")
    except tomllib.TOMLDecodeError:
        return text
    section = Settings.model_fields.get(path[0])
    key = getattr(section.annotation, "model_fields", {}).get(path[1]) if section else None
    if len(parsed) > 1 or (key is not None and key.annotation is str and not isinstance(parsed["v"], str)):
        return text  # of two lines, or a name that looks like a number: a consumer group "42"
    return parsed["v"]


def _explain(problem: Any) -> str:
    kind, loc = problem["type"], list(problem["loc"])
    kinds, at = _KINDS.get(str(loc[0]) if loc else "", (MODELS, len(loc)))
    if len(loc) > at:
        del loc[at]  # the kind, by which pydantic told the sections apart
    if kind.startswith("union_tag"):
        loc.append("kind")
    key = ".".join(map(str, loc))
    message = problem["msg"].removeprefix("Value error, ")
    if kind == "value_error" and isinstance(problem["input"], dict) and not message.startswith("must "):  # of its keys
        return f"{key}.{message}" if key else message
    if kind == "missing":
        return f"{key}: is required"
    if kind == "union_tag_not_found":
        return f"{key}: is required; must be {kinds.words()}"
    given = problem["input"].get("kind") if kind == "union_tag_invalid" else problem["input"]
    given = _masked(str(loc[-1]) if loc else "", given)
    value = json.dumps(given, default=str, ensure_ascii=False)
    value = value if len(value) <= _SHOWN else value[:_SHOWN] + "..."
    if kind == "extra_forbidden" and loc[0] in _MAY_BE_SECRET:  # an address or a password in place of a file's name
        value = "..."
    if kind == "extra_forbidden":
        return f"{key} = {value}: unknown key; {_alike(loc)}`streameval config show` lists the known ones"
    if kind == "union_tag_invalid":
        return f"{key} = {value}: must be {kinds.words()}"
    if kind == "too_long" and key in _TABLES:
        return f"{key}: {problem['ctx']['actual_length']} [[{key}]] tables; at most {problem['ctx']['max_length']} are allowed"
    if kind == "tuple_type" and key not in _TABLES:
        return f"{key} = {value}: {_LISTS.get(key) or f'must be a list, for example {_as_list(given)}'}"
    words = _TABLES.get(key) or _WORDS.get(kind) or PATTERNS.get(problem.get("ctx", {}).get("pattern", ""))
    return f"{key} = {value}: {words or message.replace('Input should', 'must', 1)}"


def _as_list(given: Any) -> str:
    """What was given in place of a list, as one: a text by its commas."""
    parts = [part for one in given.split(",") if (part := one.strip())] if isinstance(given, str) else [given]
    return json.dumps(parts, default=str, ensure_ascii=False)


def _masked(name: str, value: Any) -> Any:
    """A value as errors show it: what is a password by its name, or has one in its text, is not shown."""
    if isinstance(value, dict):
        return {key: _masked(str(key), one) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked(name, one) for one in value]
    named = _SECRET.search(name) and not name.lower().endswith(_PLACES)
    return "..." if named or (isinstance(value, str) and _SECRET_INSIDE.search(value)) else value


def _alike(loc: list[Any]) -> str:
    """The known key of the same section that an unknown one was probably meant to be, as a question."""
    fields: Mapping[str, Any] = Settings.model_fields
    for part in loc[:-1]:
        fields = getattr(getattr(fields.get(part), "annotation", None), "model_fields", {})
    name = str(loc[-1])
    cutoff = 0.75 if len(name) > 3 else 0.5  # one wrong letter of two leaves a half
    found = difflib.get_close_matches(name, list(fields), 1, cutoff=cutoff)
    return f"did you mean {'.'.join([*map(str, loc[:-1]), *found])}? " if found else ""


_KINDS = {
    "models": (MODELS, 2),
    "notify": (NOTIFIERS, 2),
    "sinks": (SINKS, 2),
    "source": (SOURCES, 1),
}  # sections of several kinds, and where an error's place names the kind
_TABLES = {
    "models": "must be [[models]] tables, each with a name and a kind",
    "objectives": "must be [[objectives]] tables, each with a name and value_at_least",
    "notify": "must be [[notify]] tables, each with a kind",
    "sinks": "must be [[sinks]] tables, each with a kind",
}
_LISTS = {"auction.points": "must be [[auction.points]] tables, each with a name and its reserves"}
_MAY_BE_SECRET = ("notify", "sinks")
_SECRET = re.compile("passw|passphrase|secret|token|credential|api_?key|jaas", re.IGNORECASE)
_SECRET_INSIDE = re.compile(rf"""({_SECRET.pattern})[\w.-]*["']?\s*[:=]""", re.IGNORECASE)
_PLACES = ("_file", "_env", "_scope")  # of names: where a secret is, which is none itself
_SHOWN = 200  # characters of a value that is wrong
# pydantic's words for things with another name in TOML
_WORDS = {
    "model_type": "must be a section with keys of its own",
    "dict_type": "must be a table such as { key = 1 }",
    "model_attributes_type": "must be a section with keys of its own",
    "string_type": "must be a string; write it in quotes",
    "string_too_short": 'must not be ""',
    "too_short": "must not be empty; give at least one",
}
