"""The reference of commands, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from docs.make.markdown import code, one_line, table, whole
from docs.make.schemas import bounds, either
from streameval.commands.cli import cli

_INTRODUCTION = """\
The output of `streameval COMMAND -h`, in one place. Exit status: 0 done, 1 an error in one line, 2 wrong usage; `gate`
and `status` have more. Ctrl-C and SIGTERM stop a command cleanly, a second one at once.
"""


def page() -> str:
    """The Markdown of every command."""
    return whole("Commands", _INTRODUCTION, _described("streameval", cli, 2))


def _described(name: str, command: click.Command, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    yield f"{'#' * level} `{name}`\n\n{one_line(command.help or '')}\n\n```\n{usage}\n```\n\n"
    options = [p for p in command.params if isinstance(p, click.Option)]
    if options:
        yield table(("option", "value", "default", "meaning"), (_row(option, context) for option in options))
    for child in (
        sorted(command.commands.values(), key=lambda c: c.name or "") if isinstance(command, click.Group) else ()
    ):
        yield from _described(f"{name} {child.name}", child, 3 if level == 2 else 4)


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str, str]:
    given = option.default
    default = "required" if option.required else code(given) if isinstance(given, (str, int, float)) else ""
    meaning = option.help or ""
    if option.envvar:
        meaning += f" Also in `{option.envvar}`."
    value = "" if option.is_flag else _value(option, context)
    return ", ".join(map(code, option.opts)), value, default if value else "", meaning


def _value(option: click.Option, context: click.Context) -> str:
    if isinstance(option.type, click.Choice):
        return either([code(choice) for choice in option.type.choices])
    if option.callback is not None and option.callback.__name__ == "seconds":
        return "duration"
    kind = option.type
    name = {"float": "number", "float range": "number", "integer range": "integer"}.get(kind.name, kind.name)
    return ", ".join([name, *bounds(_as_schema(kind))])


def _as_schema(kind: click.ParamType[Any]) -> dict[str, Any]:
    if not isinstance(kind, (click.IntRange, click.FloatRange)):
        return {}
    low = "exclusiveMinimum" if kind.min_open else "minimum"
    high = "exclusiveMaximum" if kind.max_open else "maximum"
    return {key: value for key, value in ((low, kind.min), (high, kind.max)) if value is not None}
