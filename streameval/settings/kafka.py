"""The `[kafka]` section: brokers, topics, formats, and where schemas and tokens come from."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from pydantic import Field, model_validator

from streameval.settings.section import TOPIC, TOPIC_OR_NONE, Section, Size, written

# of librdkafka's list, with the scheme that it allows
_BROKER = re.compile(r"(\w+://)?(\[[\w:.%]+\]|[^\s:/@\[\]]+)(:(?P<port>\d{1,5}))?")


class SchemaRegistry(Section):
    """Where the schemas of Avro and Protobuf messages are: a registry with Confluent's HTTP interface."""

    url: str = Field("", description="`http://` or `https://` address, with its path; separate several with commas")
    username: str = Field("", description="user name for basic authentication; with Confluent Cloud, the API key")
    password_file: str = Field("", description="file with the password that goes with `username`")
    token_file: str = Field("", description="file with a bearer token, read for every request")
    ca: str = Field("", description='PEM file of the certificate authorities to trust; `""`: those of the system')
    certificate: str = Field("", description="PEM file of a client certificate")
    key: str = Field("", description="PEM file of its key, without a password")

    @model_validator(mode="after")
    def _consistent(self) -> SchemaRegistry:
        for one in self.url.split(",") if self.url else ():
            if not re.match(r"https?://[^/]", one.strip()):
                raise ValueError(f"url = {json.dumps(one)}: must begin with http:// or https://, and have no user name")
            if "@" in one.split("://", 1)[1].split("/", 1)[0]:
                raise ValueError("url: must not hold a password; set username and password_file")
        if self.username and self.token_file:
            raise ValueError("token_file: username is set too; set one of the two")
        if self.key and not self.certificate:
            raise ValueError("key: has no effect without certificate")
        return self


class Kafka(Section):
    """Brokers, topics and client."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="`host:port`; separate several with commas")
    client: Literal["confluent", "kafka-python"] = Field("confluent", description="client library")
    group_id: str = Field("streameval", min_length=1, description="consumer group")
    impressions_topic: str = Field("impressions", min_length=1, pattern=TOPIC, description="topic of the impressions")
    clicks_topic: str = Field(
        "clicks", min_length=1, pattern=TOPIC, description="topic of the clicks; may be the same as `impressions_topic`"
    )
    dead_letter_topic: str = Field(
        "streameval-dead-letters",
        pattern=TOPIC_OR_NONE,
        description='topic for invalid events, unchanged; with `""` they are only counted',
    )
    format: Literal["json", "arrow", "avro", "protobuf"] = Field(
        "json",
        description="`json` (an object or an array of objects per message), `arrow` (an IPC stream per message), `avro` or `protobuf` (an event per message, in Confluent's wire format)",
    )
    schema_registry: SchemaRegistry = Field(
        SchemaRegistry(), description="where the schemas of `avro` and `protobuf` are"
    )
    columns: dict[str, Any] = Field(
        default_factory=dict,
        description="our field = how to derive it from the fields of a message, as in `[files.columns]`",
    )
    click_columns: dict[str, Any] = Field(
        default_factory=dict, description="the same for the clicks topic, where its fields have other names"
    )
    start: Literal["earliest", "latest"] = Field(
        "latest",
        description="where a partition without a checkpoint starts (without a store: one without committed offsets)",
    )
    on_recreated_topic: Literal["beginning", "end", "stop"] = Field(
        "beginning",
        description="when a topic was deleted and recreated under the same name: read it from its `beginning`, from its `end` (its messages up to then are counted as lost), or `stop` with an error",
    )
    max_message: Size = written("16MB", description="larger messages go to the dead letters")
    oauth: str = Field(
        "",
        description="`module:callable` that provides tokens for SASL/OAUTHBEARER: called without arguments, it returns a token and when it expires (seconds since the epoch)",
    )
    client_options: dict[str, Any] = Field(
        default_factory=dict, description="passed to the client unchanged: TLS, SASL, tuning"
    )

    @model_validator(mode="after")
    def _brokers_have_addresses(self) -> Kafka:
        for one in self.bootstrap_servers.split(","):
            found = _BROKER.fullmatch(one.strip())
            if found is None or not 0 < int(found["port"] or 9_092) < 1 << 16:
                raise ValueError(
                    f"bootstrap_servers = {json.dumps(self.bootstrap_servers)}: must be host:port; separate several with commas"
                )
        return self

    @model_validator(mode="after")
    def _dead_letters_are_no_input(self) -> Kafka:
        for name in ("impressions_topic", "clicks_topic"):
            if self.dead_letter_topic == getattr(self, name):  # every letter would be read, and be one again
                raise ValueError(
                    f"dead_letter_topic = {json.dumps(self.dead_letter_topic)}: must be a different topic from {name}, "
                    "which is an input"
                )
        return self

    @model_validator(mode="after")
    def _readable(self) -> Kafka:
        if self.format in ("avro", "protobuf") and not self.schema_registry.url:
            raise ValueError(f'schema_registry.url = "": is needed with format = "{self.format}"')
        if self.format == "arrow" and (self.columns or self.click_columns):
            raise ValueError(
                'columns: fields are not mapped with format = "arrow"; have the producer use the standard names'
            )
        if self.click_columns and self.clicks_topic == self.impressions_topic:
            raise ValueError("click_columns: clicks have no separate topic; map both kinds in columns")
        if self.oauth and not re.fullmatch(r"[\w.]+:[\w.]+", self.oauth):
            raise ValueError(f'oauth = {json.dumps(self.oauth)}: must be "module:callable"')
        return self
