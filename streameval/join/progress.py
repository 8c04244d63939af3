"""How far the inputs of a partition have advanced, in event time. Never reads a clock.

Labels are `firm` up to the time that both inputs have reached, minus the lateness; silence does not advance it. The
`watermark` is further ahead while one input is silent and the other one is not. But the join waits for a silent input only
until the other is ahead by the correction horizon, and only if it is known to have been silent: an input that resumes while
the other is read ahead of it was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.join.policy import FOREVER, KNOWN, NEVER, JoinPolicy

_PROOFS = 20  # how often per horizon it is checked that a silent input has been read to its end
_STATE = ("watermark", "firm", "given_up", "needs_clicks", "newest_event")


class Progress:
    """The progress of one input with both kinds of events, or of two: 0 impressions, 1 clicks. Times in ms."""

    def __init__(self, policy: JoinPolicy, inputs: int) -> None:
        self._lateness, self._horizon = policy.allowed_lateness, policy.correction_horizon
        self.inputs = inputs
        self.newest = np.full(inputs, NEVER, np.int64)  # by input; `kernel.join_batch` advances them
        self.newest_event = NEVER
        self.watermark = NEVER  # reached by all inputs that are not silent
        self.firm = NEVER  # reached by all inputs; at most the watermark
        self.given_up = NEVER  # the join no longer waits for events of a silent input before this time
        self.unlabelled = 0  # impressions, not mature, that wait for clicks because they do not carry their label
        self.needs_clicks = False  # there has been such an impression, or a click
        self._active = np.ones(inputs, np.bool_)
        # by input, if it is silent: it had been read to its end when the other one was at this time
        self._silent_until = np.full(inputs, NEVER, np.int64)

    def look_ahead(self, shown: NDArray[np.int64], clicked: NDArray[np.int64]) -> int:
        """How far `firm` will be when every input has reached the earliest of these times, those of a non-empty batch."""
        newest = self.newest.copy()
        if self.inputs == 1:
            newest[0] = max(newest[0], min(int(ts.min()) for ts in (shown, clicked) if ts.size))
        else:  # an input without events does not advance
            for number, ts in enumerate((shown, clicked)):
                if ts.size:
                    newest[number] = max(newest[number], int(ts.min()))
        return self._firm(newest)

    def heard(self, impressions: NDArray[np.uint8], clicks: int) -> None:
        """`newest` has advanced, by new rows with these states and this many clicks."""
        self.newest_event = max(self.newest_event, int(self.newest.max()))
        unlabelled = self._count(impressions)
        self.unlabelled += unlabelled
        self.needs_clicks = self.needs_clicks or unlabelled > 0 or clicks > 0
        self._move_on()

    def matured(self, impressions: NDArray[np.uint8]) -> None:
        """Rows with these states have matured."""
        self.unlabelled -= self._count(impressions)

    def set_idle(self, input_number: int, idle: bool) -> None:
        """An input that has been silent for long (by the caller's clock) no longer holds the watermark back.

        `idle`: it has been read to its end now. Must be called again for an input that `must_be_asked`.
        """
        self._active[input_number] = not idle
        if idle:
            self._silent_until[input_number] = self.newest.max()
            self._move_on()

    def must_be_asked(self, input_number: int) -> bool:
        """Whether it matters if a silent input has been read to its end: it is not idle yet, or more of it would be given up."""
        newest = int(self.newest.max())
        beyond = newest - self._lateness - self._horizon > self.given_up
        silent_until = int(self._silent_until[input_number])
        return bool(self._active[input_number]) or (beyond and (newest - silent_until) * _PROOFS > self._horizon)

    def is_idle(self, input_number: int) -> bool:
        """Whether an input is idle."""
        return not self._active[input_number]

    @property
    def idle(self) -> bool:
        """Whether all inputs are idle, so that nothing advances the watermark."""
        return not self._active.any()

    @property
    def newest_label(self) -> int:
        """The event time up to which the input that carries clicks has been read; NEVER before its first event."""
        return int(self.newest[-1])

    @property
    def passed(self) -> int:
        """Every future event has a key of at least this plus the lateness.

        Impressions that carry their label are not kept for clicks as long as there are no others.
        """
        if self.inputs == 1 or not self.needs_clicks:
            return self.firm
        read = int(self.newest.min())
        return self.given_up if read == NEVER else max(self.given_up, read - self._lateness)

    def finish(self) -> None:
        """The stream has ended."""
        self.watermark = self.firm = self.given_up = FOREVER

    def follow(self, firm: int) -> None:
        """No input brings anything any more: labels are firm up to where those of other partitions are, and none waits for us."""
        self._active[:] = False
        if firm != NEVER:
            np.maximum(self.newest, firm + self._lateness, out=self.newest)
        self._silent_until[:] = self.newest.max()
        self._move_on()

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`, except `unlabelled`, which follows from the rows."""
        return {
            **{name: getattr(self, name) for name in _STATE},
            "newest": self.newest.copy(),
            "active": self._active.copy(),
        }

    def restore(self, state: Mapping[str, Any], impressions: NDArray[np.uint8]) -> None:
        """Restores what `state` returned; `impressions`: the states of all rows that have not matured."""
        for name in _STATE:
            setattr(self, name, state[name])
        self.newest[:], self._active[:] = state["newest"], state["active"]
        self.unlabelled = self._count(impressions)

    def _count(self, impressions: NDArray[np.uint8]) -> int:
        """The number of impressions that wait for clicks."""
        return int(np.count_nonzero(impressions & KNOWN == 0))

    def _firm(self, newest: NDArray[np.int64]) -> int:
        """`firm` when the inputs have reached `newest`; impressions that carry their label do not wait for clicks."""
        reached = int(newest.min()) if self.unlabelled else int(newest[0])
        return self.firm if reached == NEVER else max(self.firm, reached - self._lateness)

    def _move_on(self) -> None:
        """Updates all times: inputs have advanced, or fallen silent."""
        active = self.newest[self._active]
        # when all are idle, none holds the others back, whichever fell silent first
        reached = int(active.min()) if active.size else int(self.newest.max())
        self.firm = self._firm(self.newest)
        if reached != NEVER:
            reached -= self._lateness
            self.watermark = max(self.watermark, reached)
            # rows cannot be kept indefinitely for an input that stays silent
            proven = int(self._silent_until[~self._active].min(initial=FOREVER))
            self.given_up = max(self.given_up, min(reached, proven - self._lateness) - self._horizon)
            self.firm = max(self.firm, self.given_up)
        self.watermark = max(self.watermark, self.firm)
