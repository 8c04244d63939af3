"""How long a poll waits for more messages after the first one.

A batch costs about a millisecond, whatever it contains. Of many partitions that bring little each, a loop that polls all
the time would be busy all the time; so it waits for a multiple of what the last batches took.
"""

from __future__ import annotations

LEAST_LINGER, MOST_LINGER = 0.05, 0.2  # seconds: 20 small polls a second at most, and 5 at least
_REST = 4  # as long as the last batches took


def after(busy: float) -> float:
    """Returns for how long, in seconds; `busy`: seconds that the batches of the last polls took."""
    return min(max(LEAST_LINGER, _REST * busy), MOST_LINGER)
