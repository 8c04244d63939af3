"""The certificate that readers connect by, and what there is to say about its dates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

_TWO_WEEKS = 14 * 86400
_FIX = "replace the files of server.tls_certificate and server.tls_key, no restart is needed"


@dataclass(frozen=True, slots=True)
class CertificateState:
    """When all certificates of the served chain are valid; seconds since the epoch."""

    not_before: float
    not_after: float
    of_chain: bool = False  # the one that expires first is not the server's own

    def concern(self, now: float) -> Literal["", "early", "soon", "expired"]:
        """ "soon": less than two weeks are left, or a fifth of its life where that is shorter: renewal is overdue by then."""
        if now >= self.not_after:
            return "expired"
        if now < self.not_before:
            return "early"
        left = min(_TWO_WEEKS, (self.not_after - self.not_before) / 5)
        return "soon" if self.not_after - now < left else ""

    def words(self, now: float) -> str | None:
        """What is wrong or will be, and the fix; None: nothing."""
        which = "a certificate of the server's chain" if self.of_chain else "the server's certificate"
        match self.concern(now):
            case "expired":
                return (
                    f"tls: {which} expired on {_date(self.not_after)}, so clients that check it do not connect; {_FIX}"
                )
            case "soon":
                return f"tls: {which} expires on {_date(self.not_after)} and has not been renewed; {_FIX}"
            case "early":
                return f"tls: the server's certificate is not valid before {_date(self.not_before)}; is this machine's clock right?"
        return None


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
