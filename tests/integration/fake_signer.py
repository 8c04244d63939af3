"""What `kafka.oauth` may name in tests: tokens that a Kafka with its own unsecured validator takes, and counts of them.

With AWS MSK the same callable is two lines around aws-msk-iam-sasl-signer: see docs/deploy.md.
"""

from __future__ import annotations

import base64
import json
import time

LIFE = 8.0  # seconds
asked = 0


def token() -> tuple[str, float]:
    """(an unsecured JSON web token, when it expires)."""
    global asked
    asked += 1
    now = time.time()
    head, body = {"alg": "none"}, {"sub": "streameval", "iat": now, "exp": now + LIFE}
    packed = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, body))
    return ".".join([*packed, ""]), now + LIFE
