"""Which changes of verdicts are told, and under which keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streameval.compare.reading.reading import Comparison, Role, RoleName, VerdictChange
from streameval.events.batch import Series
from streameval.outlets.notify.changes import verdict_changes
from streameval.outlets.notify.message import message_of
from streameval.outlets.notify.silence import silences
from streameval.results.snapshot import Snapshot, empty_snapshot
from tests.comparisons import MINUTE, NOON, comparison

ADS = Series("ads", "v1", "logged")


def of(*comparisons: Comparison) -> Snapshot:
    return replace(empty_snapshot(0.0), number=1, taken_at=(NOON + 10 * MINUTE) / 1000, comparisons=comparisons)


def kinds(*changes: tuple[str, str], now: str = "worse", supported: bool | None = True) -> list[str]:
    told = tuple(VerdictChange(NOON + i * MINUTE, kind, verdict, "said") for i, (kind, verdict) in enumerate(changes))  # type: ignore[arg-type]
    c = comparison(changes=told, verdict=now, supported_now=supported)
    return [one.kind for one in verdict_changes(of(c))]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([("verdict", "worse")], ["worse"]),
        ([("verdict", "not_worse")], ["not_worse"]),
        ([("withheld", "undecided"), ("restored", "undecided")], ["withheld", "recovered"]),
        ([("verdict", "worse"), ("contrary", "not_worse")], ["worse", "recovered"]),
        ([("verdict", "not_worse"), ("contrary", "worse")], ["not_worse", "worse"]),
        ([("verdict", "worse"), ("retracted", "undecided")], ["worse", "recovered"]),
        ([("verdict", "not_worse"), ("retracted", "undecided")], ["not_worse", "withheld"]),
        ([("verdict", "worse"), ("contrary", "worse")], ["worse"]),
        ([("anew", "undecided")], []),
    ],
)
def test_what_a_change_is_for_people(changes: list[tuple[str, str]], told: list[str]) -> None:
    assert kinds(*changes, now=changes[-1][1]) == told


def test_a_verdict_that_data_no_longer_support_has_recovered_once() -> None:
    assert kinds(("verdict", "worse"), supported=False) == ["worse", "recovered"]


def test_keys_follow_from_what_happened_and_from_nothing_else() -> None:
    told = (VerdictChange(NOON, "verdict", "worse", "said"),)
    [one] = verdict_changes(of(comparison(changes=told, impressions=1_000)))
    [again] = verdict_changes(of(comparison(changes=told, impressions=9_000, id="77-paired", deploy="77")))
    [other] = verdict_changes(of(comparison(changes=told, setup="split")))
    assert one.key == again.key != other.key


def test_a_version_that_serves_nobody_alarms_nobody() -> None:
    told = (VerdictChange(NOON, "verdict", "worse", "said"),)
    [live] = verdict_changes(of(comparison(changes=told)))
    [shadow] = verdict_changes(of(comparison(changes=told, roles=(None, Role("shadow")))))
    assert (live.quiet, shadow.quiet) == (False, True)


@pytest.mark.parametrize(
    ("role", "quiet"),
    [
        ("live", [False, False, False, False]),
        ("retired", [False, False, True, True]),  # its last labels come late, and are judged
        ("shadow", [True, True, True, True]),
    ],
)
def test_labels_of_a_version_that_is_gone_are_no_news(role: RoleName, quiet: list[bool]) -> None:
    told = (
        VerdictChange(NOON, "verdict", "worse", "said"),
        VerdictChange(NOON + 1, "contrary", "not_worse", "said"),
        VerdictChange(NOON + 2, "withheld", "not_worse", "no clicks"),
        VerdictChange(NOON + 3, "restored", "not_worse", "labels are reliable again"),
    )
    found = list(verdict_changes(of(comparison("not_worse", changes=told[1:], roles=(None, Role(role))))))
    assert [one.kind for one in found] == ["not_worse", "withheld", "recovered"]
    assert [one.quiet for one in found] == quiet[1:]
    first = next(verdict_changes(of(comparison("worse", changes=told[:1], roles=(None, Role(role))))))
    assert first.quiet == quiet[0]


def test_a_change_knows_what_it_ends() -> None:
    told = (
        VerdictChange(NOON, "verdict", "worse", "said"),
        VerdictChange(NOON + 1, "withheld", "worse", "no clicks"),
        VerdictChange(NOON + 2, "restored", "worse", "labels are reliable again"),
        VerdictChange(NOON + 3, "contrary", "undecided", "said"),
        VerdictChange(NOON + 4, "verdict", "not_worse", "said"),
    )
    worse, withheld, restored, recovered, green = verdict_changes(of(comparison("not_worse", changes=told)))
    assert (worse.ends, withheld.ends, restored.ends, recovered.ends) == ("", "", withheld.key, worse.key)
    assert green.ends == ""
    *_, unsupported = verdict_changes(of(comparison(changes=told[:3], supported_now=False)))
    assert (unsupported.kind, unsupported.ends) == ("recovered", worse.key)


def test_labels_that_are_reliable_again_are_no_recovery_of_a_version() -> None:
    told = (
        VerdictChange(NOON, "verdict", "worse", "said"),
        VerdictChange(NOON + MINUTE, "withheld", "worse", "no clicks where many were expected"),
        VerdictChange(NOON + 2 * MINUTE, "restored", "worse", "labels are reliable again"),
    )
    *_, withheld = verdict_changes(of(comparison(changes=told[:2], withheld=True, reason="no_clicks")))
    assert withheld.text.startswith(
        "no clicks where many were expected (12:01 UTC): no new verdict until labels are reliable again; the last one "
        "stands: v2 is worse than v1: "
    )
    *_, restored = verdict_changes(of(comparison(changes=told)))
    assert restored.text.startswith("labels are reliable again (12:02 UTC); the verdict stands: v2 is worse than v1: ")
    notice = message_of(restored.key, restored.body(), "")
    assert (notice.title, notice.kind) == ("Labels reliable again: default v2", "recovered")
    assert "titled" not in notice.as_json()
    *_, again = verdict_changes(of(comparison(changes=told, withheld=True, reason="no_clicks")))
    assert again.text.startswith("labels are reliable again (12:02 UTC). Now: ")  # they are not, by now
    ended = (*told[:1], VerdictChange(NOON + MINUTE, "contrary", "not_worse", "worse -> not worse"))
    *_, recovered = verdict_changes(of(comparison("not_worse", changes=ended)))
    assert message_of(recovered.key, recovered.body(), "").title == "Recovered: default v2"
    undecided = tuple(replace(one, verdict="undecided") for one in told[1:])
    _, restored = verdict_changes(of(comparison("undecided", changes=undecided)))
    assert restored.text.startswith("labels are reliable again (12:02 UTC). Now: v2 against v1 is undecided")


def test_a_change_that_is_not_the_latest_says_what_holds_now() -> None:
    told = (
        VerdictChange(NOON, "verdict", "worse", "undecided -> worse"),
        VerdictChange(NOON + 1, "contrary", "not_worse", "x"),
    )
    first, _ = verdict_changes(of(comparison(changes=told, verdict="not_worse")))
    assert first.text.startswith("undecided -> worse (")
    assert ". Now: " in first.text


def test_no_data_begins_and_ends_once_each() -> None:
    seen = replace(empty_snapshot(1_000.0), last_seen={ADS: 2_000.0})
    limit = 900_000
    assert not silences(seen, 2_899.0, [limit], set()).changes
    begun = silences(seen, 2_900.0, [limit], set())
    assert [(one.kind, one.model) for one in begun.changes] == [("no_data", "ads")]
    going_on = set(begun.opens)
    assert not silences(seen, 9_000.0, [limit], going_on).changes
    back = replace(seen, last_seen={ADS: 9_001.0})
    ended = silences(back, 9_002.0, [limit], going_on)
    assert [one.kind for one in ended.changes] == ["recovered"]
    assert set(ended.closes) == going_on
    assert ended.changes[0].incident == begun.changes[0].incident


def test_a_process_that_has_just_started_does_not_call_a_model_silent() -> None:
    started = replace(empty_snapshot(50_000.0), last_seen={ADS: 2_000.0})
    assert not silences(started, 50_899.0, [900_000], set()).changes
    assert silences(started, 50_900.0, [900_000], set()).changes


def test_each_asks_for_its_own_time_without_data() -> None:
    seen = replace(empty_snapshot(0.0), last_seen={ADS: 10.0})
    found = silences(seen, 400.0, [60_000, 900_000], set())
    assert [one.after for one in found.changes] == [60_000]


def test_a_message_of_another_day_has_its_date() -> None:
    told = (
        VerdictChange(NOON + 3 * MINUTE, "verdict", "worse", "AUC is below its margin"),
        VerdictChange(NOON + 4 * MINUTE, "withheld", "worse", "no clicks"),
    )
    late = replace(of(comparison(changes=told, withheld=True)), taken_at=NOON / 1000 + 20 * 86_400)
    worse, withheld = verdict_changes(late)
    assert worse.text.startswith("v2 is worse than v1: decided 2024-05-01 12:03 UTC on AUC")
    assert withheld.text.startswith("no clicks (2024-05-01 12:04 UTC): ")


def test_names_in_titles_are_as_printable_and_short_as_in_texts() -> None:
    odd = Series("\u202eads", "v" * 200, "logged")
    told = (VerdictChange(NOON, "verdict", "worse", "said"),)
    [one] = verdict_changes(of(comparison(candidate=odd, changes=told)))
    notice = message_of(one.key, one.body(), "")
    assert notice.title == "Worse: \N{REPLACEMENT CHARACTER}ads " + "v" * 77 + "..."
    assert notice.as_json()["candidate"] == "v" * 200  # for programs it is whole
    assert (notice.model, notice.as_json()["model"]) == (odd.model, odd.model)
    silent = replace(of(), started_at=0.0, last_seen={odd: 0.0})
    [gone] = silences(silent, 3_600.0, [60_000], ()).changes
    assert gone.text == "\N{REPLACEMENT CHARACTER}ads: no new labels for 1m"
