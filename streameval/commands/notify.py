"""`streameval notify test`: whether all receivers can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streameval.outlets.notify.message import message_for_a_test
from streameval.outlets.notify.receivers import DeliveryError, make_receiver
from streameval.settings.tree import ConfigError, Settings


def send_test(settings: Settings, names: Sequence[str], say: Callable[[str], None]) -> bool:
    """Sends a test message to the receivers with these names (none: to all); returns whether all have accepted it.
    Raises ConfigError."""
    if not settings.notify:
        raise ConfigError("notify: no receiver is configured; add a [[notify]] table")
    known = [one.called for one in settings.notify]
    for name in names:
        if name not in known:
            raise ConfigError(f'notify: no receiver "{name}"; configured: {", ".join(known)}')
    message = message_for_a_test(time.time(), settings.server.external_url)
    fine = True
    for one in settings.notify:
        if names and one.called not in names:
            continue
        try:
            make_receiver(one).send(message)
        except (DeliveryError, ConfigError) as error:
            fine = False
            say(f"{one.called}: not delivered: {error}")
        else:
            say(f"{one.called}: delivered")
    return fine
