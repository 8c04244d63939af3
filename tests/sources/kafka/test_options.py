"""Options of either client that would be ignored in silence."""

from __future__ import annotations

import pytest

from streameval.sources.kafka.options import check_options
from streameval.sources.protocol import SourceError


@pytest.mark.parametrize(
    ("options", "ignored", "wanted"),
    [
        ({"sasl.mechanisms": "PLAIN", "sasl.username": "a"}, "sasl.mechanisms", "security.protocol"),
        ({"security.protocol": "ssl", "sasl.password": "p"}, "sasl.password", "security.protocol"),
        ({"sasl_mechanism": "PLAIN"}, "sasl_mechanism", "security_protocol"),
        ({"sasl_mechanism": "PLAIN", "security_protocol": "SSL"}, "sasl_mechanism", "security_protocol"),
    ],
)
def test_credentials_that_the_protocol_does_not_use_are_an_error(
    options: dict[str, str], ignored: str, wanted: str
) -> None:
    with pytest.raises(SourceError, match=rf"^kafka\.client_options\.{ignored}: is ignored without {wanted} = "):
        check_options(options, {})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"security.protocol": "sasl_ssl", "sasl.mechanisms": "PLAIN"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
        {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"},
    ],
)
def test_options_that_are_used_pass(options: dict[str, str]) -> None:
    check_options(options, {})
