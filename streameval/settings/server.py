"""The `[server]` section: HTTP, the token, TLS, and what readers are shown."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from streameval.settings.section import Int, PositiveDuration, Section, of_form, written


class Server(Section):
    """HTTP, token and TLS."""

    host: str = Field("127.0.0.1", description="address to bind")
    port: Int = Field(8080, ge=0, le=65535, description="0 picks a free port")
    token_file: str = Field(
        "", description="file with the bearer token; the token may be in `STREAMEVAL_TOKEN` instead, but not in both"
    )
    token_scope: Literal["private", "all"] = Field(
        "private",
        description="what requires the token: `private` (all writes, and individual users) or `all` (everything except `/livez`, `/readyz` and `/healthz`)",
    )
    tls_certificate: str = Field("", description="PEM file of the certificate and its chain; if set, HTTPS only")
    tls_key: str = Field("", description="PEM file of the certificate's key, without a password")
    version_ttl: PositiveDuration = written(
        "24h", description="a version without impressions for this long is dropped from `/metrics`"
    )
    snapshot_interval: PositiveDuration = written(
        "1s", description="shortest interval between two snapshots, which are what readers see"
    )
    max_series: Int = Field(
        10_000, ge=100, description="maximum number of Prometheus series; slices are dropped first, and counted"
    )
    external_url: str = Field(
        "",
        pattern=of_form(
            r"^(https?://[^@\s?#]+)?$",
            'must be an address such as "https://streameval.example", without a user, a query or a fragment',
        ),
        description="public address of the page, for links to it",
    )

    @model_validator(mode="after")
    def _certificate_with_its_key(self) -> Server:
        if bool(self.tls_certificate) != bool(self.tls_key):
            missing, given = ("tls_key", "tls_certificate") if self.tls_certificate else ("tls_certificate", "tls_key")
            raise ValueError(
                f'{missing} = "": is needed with server.{given} = "{getattr(self, given)}"; set both or neither'
            )
        return self
