"""Since when impressions wait for their label: what the page needs to say until when."""

from __future__ import annotations

from streameval.results.snapshot import PartitionState
from streameval.testing import Event, Shown, make_batch, readers_see
from tests.loop.test_pipeline import BASE, make_pipeline

MINUTE = 60_000  # ms


def test_the_earliest_impression_without_a_final_label_is_known_and_none_once_the_stream_has_ended() -> None:
    pipeline = make_pipeline()  # labels are final 2 minutes after the impression, behind a watermark a minute late

    def after(*minutes: float) -> PartitionState:
        events: list[Event] = [Shown(f"i{minute}", BASE + round(minute * MINUTE), clicked=0) for minute in minutes]
        pipeline.take(make_batch(events, pipeline.catalog, 0))
        (state,) = readers_see(pipeline).partitions
        return state

    first = after(0.5, 0, 1)
    assert first.waiting_since == BASE  # the earliest, whatever came first
    # in event time it is as long until its label as the page says
    assert first.watermark is not None
    assert BASE + 2 * MINUTE - first.watermark == 2 * MINUTE
    after(3)
    assert after(4.2, 4.3).waiting_since == BASE + 3 * MINUTE
    pipeline.finish()
    (ended,) = readers_see(pipeline).partitions
    assert ended.waiting_since is None
