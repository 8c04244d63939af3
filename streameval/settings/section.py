"""The building blocks of sections: its base, durations, sizes and numbers.

Unknown keys are errors. Durations are stored in milliseconds, sizes in bytes; both are written as in `units`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from streameval.settings.units import format_duration, parse_duration, parse_size

PATTERNS: dict[str, str] = {}  # the error for a text that does not match, by pattern


def of_form(pattern: str, words: str) -> str:
    """The `pattern` of a field, and the error for a text that does not match it."""
    PATTERNS[pattern] = words
    return pattern


_TOPIC = "[A-Za-z0-9._-]{3,249}|[A-Za-z0-9._-]?[A-Za-z0-9_-]|[A-Za-z0-9_-][.]"  # Kafka has no "." and no ".."
_TOPIC_WORDS = 'must be at most 249 letters, digits, dots, dashes and underscores, and not "." or ".."'
TOPIC = of_form(f"^({_TOPIC})$", _TOPIC_WORDS)
TOPIC_OR_NONE = of_form(f"^({_TOPIC}|)$", f'{_TOPIC_WORDS}; or "" for none')


def _positive_duration(value: object) -> int:
    ms = parse_duration(value)
    if ms <= 0:
        raise ValueError('must be positive, for example "5m"')
    return ms


# what a file may hold, for editors and for docs/reference; `units` has the last word
DURATION_SCHEMA = {"$comment": "duration", "type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"}
SIZE_SCHEMA = {
    "$comment": "size",
    "anyOf": [
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*([Kk]|[Mm]|[Gg])?([Ii][Bb]|[Bb])\s*$"},
        {"type": "integer", "minimum": 1},
    ],
}

Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, when_used="always"),
    WithJsonSchema({"$comment": "duration", "anyOf": [DURATION_SCHEMA, {"const": 0}]}),
]
PositiveDuration = Annotated[
    int,
    BeforeValidator(_positive_duration),
    PlainSerializer(format_duration, when_used="always"),
    WithJsonSchema(DURATION_SCHEMA),
]
Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema(SIZE_SCHEMA)]


def _no_switch(value: object) -> object:
    if isinstance(value, bool):  # pydantic would take true for 1
        raise ValueError("must be a number, not true or false")
    return value


Int = Annotated[int, BeforeValidator(_no_switch)]
Real = Annotated[float, BeforeValidator(_no_switch)]


def written(default: object, description: str) -> Any:
    """A field whose default is written as users write it ("30m") and validated like what they write."""
    return Field(default, description=description)


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )


class Kinds:
    """The sections that are allowed in one place, distinguished by their `kind`. Annotates the field that holds one.

    A class is known by the default of its `kind`, which is a `Literal` of that one word.
    """

    def __init__(self, *sections: type[Section]) -> None:
        self.sections: dict[str, type[Section]] = {kind_of(section): section for section in sections}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {kind: handler.generate_schema(section) for kind, section in self.sections.items()}
        return core_schema.tagged_union_schema(choices, discriminator="kind")

    def words(self) -> str:
        """The kinds, for an error: `"ftrl" or "river"`."""
        quoted = [f'"{kind}"' for kind in self.sections]
        return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def kind_of(section: type[Section]) -> str:
    """The word for a class of sections."""
    return str(section.model_fields["kind"].default)
