"""What /metrics says: meaning, absence, budget, TTL."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from streameval.events.batch import Series
from streameval.loop.reading import REPORTED_FATES
from streameval.metrics.when_read import MappingWhenRead
from streameval.results.publish import Publisher
from streameval.results.result import Result, Totals
from streameval.results.snapshot import CheckpointState, JoinHealth, PartitionState, empty_snapshot
from streameval.server import create_app
from streameval.server.prometheus.flow import FATES
from streameval.settings.server import Server
from streameval.sources.protocol import REASONS
from tests.comparisons import comparison, deploy, reading

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
NOW = 1_714_564_800.0
V1 = {"model_name": "default", "model_version": "v1", "source": "logged"}
V2 = {**V1, "model_version": "v2"}
SERIES_1, SERIES_2 = Series("default", "v1", "logged"), Series("default", "v2", "logged")


def test_sums_come_from_the_whole_run_and_gauges_from_their_window(scrape, build) -> None:
    snapshot = build.snapshot()
    got = scrape(snapshot)
    whole = next(r for r in snapshot.results if r.series.version == "v1" and r.window == "all" and r.slice is None)
    assert got.get("impressions_total", **V1) == whole.totals.impressions
    assert got.get("clicks_total", **V1) == whole.totals.clicks
    assert got.get("predicted_clicks_total", **V1) == whole.totals.predicted_clicks
    assert got.get("log_loss_nats_total", **V1) == whole.totals.log_loss_nats
    assert got.get("squared_error_total", **V1) == whole.totals.squared_error
    assert got.get("auc", **V1, window="all") == whole.metrics["auc"]
    assert got.get("normalized_entropy", **V1, window="5m") == pytest.approx(1 - whole.metrics["rig"])
    assert got.get("calibration_ratio", **V1, window="5m") == whole.metrics["calibration"]
    assert got.get("window_matured_ratio", **V1, window="5m") == 0.75
    assert got.get("newest_label_timestamp_seconds", **V1) == 1_714_564_000


def test_buckets_can_be_rebuilt_from_their_sums(scrape, build) -> None:
    snapshot = build.snapshot()
    got, result = scrape(snapshot), snapshot.results[1]
    for i, bucket in enumerate(result.buckets):
        assert got.get("bucket_impressions_total", **V1, bucket=f"{i:02d}") == bucket.impressions
        assert (
            got.get("bucket_predicted_clicks_total", **V1, bucket=f"{i:02d}") == bucket.mean_pclick * bucket.impressions
        )
    assert got.get("bucket_info", bucket="01", lower="0.01", upper="0.1") == 1


def test_an_undefined_metric_is_absent_and_never_nan(scrape, build) -> None:
    got = scrape(build.snapshot())
    assert got.get("auc", **V2, window="5m") is None
    assert got.get("window_matured_ratio", **V2, window="5m") is None
    assert got.get("window_impressions", **V2, window="5m") == 0
    assert got.get("result_reliable", **V2, window="5m") == 0
    assert got.get("undefined_results", metric="auc", reason="no_impressions") == 1
    assert not any(
        math.isnan(v) for name, s in got.samples.items() if name.startswith("streameval") for v in s.values()
    )
    broken = build.result()
    object.__setattr__(broken, "metrics", {**broken.metrics, "auc": float("nan")})
    assert scrape(build.snapshot(results=(broken,))).labels("auc") == []


def test_slices_have_families_of_their_own(scrape, build) -> None:
    snapshot = build.snapshot()
    got = scrape(snapshot)
    sliced = next(r for r in snapshot.results if r.slice == ("country", "fr") and r.window == "all")
    where = {**V1, "slice": "country", "slice_value": "fr"}
    assert got.get("slice_impressions_total", **where) == sliced.totals.impressions
    assert got.get("slice_auc", **where, window="all") == sliced.metrics["auc"]
    assert all("slice" not in labels for labels in got.labels("impressions_total") + got.labels("auc"))


def test_the_flow_is_counted_by_fate_and_every_reason_is_there_from_the_start(scrape, build) -> None:
    got = scrape(replace(empty_snapshot(0.0), ready={"assigned": True}))
    assert {labels["reason"] for labels in got.labels("events_invalid_total")} == set(REASONS)
    assert got.get("events_total", event="click", fate="late") == 0
    assert got.get("events_received_total", event="impression") == 0
    got = scrape(build.snapshot())
    assert got.get("events_received_total", event="click") == 90
    assert got.get("events_total", event="click", fate="late") == 4
    assert got.get("events_total", event="impression", fate="matured") == 4800
    assert got.get("events_invalid_total", reason="malformed") == 7
    assert got.get("pending_impressions") == 200


def test_counters_of_the_flow_do_not_begin_at_zero_before_they_are_restored(scrape, build) -> None:
    nothing = {"online_updates": {"ftrl": 0}, "online_failures": {"ftrl": {"raised": 0}}, "events": {"impressions": 0}}
    restored = {"events_received_total", "events_total", "events_invalid_total", "online_updates_total"}
    restored |= {"online_failures_total", "join_delay_seconds_count"}
    got = scrape(build.snapshot(partitions=(), ready={"broker": True, "assigned": False}, **nothing))
    assert not [name for name in restored if got.labels(name)]
    got = scrape(build.snapshot(partitions=(), ready={"broker": True, "assigned": True}, **nothing))
    assert not [name for name in restored if not got.labels(name)]
    assert got.get("online_updates_total", model_name="ftrl") == 0


def test_every_counter_of_the_pipeline_has_a_fate() -> None:
    assert set(REPORTED_FATES) - {"impressions", "clicks", "pending", "quarantined"} == set(FATES)
    assert len(set(FATES.values())) == len(FATES)


def test_times_are_timestamps_and_absent_without_a_date(scrape, build) -> None:
    endless = PartitionState(7, 1 << 62, 1 << 62, 0, {}, {})
    got = scrape(build.snapshot(partitions=(*build.snapshot().partitions, endless)))
    assert got.get("watermark_timestamp_seconds", partition="0") == 1_714_564_740
    assert got.labels("watermark_timestamp_seconds") == [{"partition": "0"}]
    assert got.labels("label_complete_timestamp_seconds") == [{"partition": "0"}]
    assert got.get("snapshot_timestamp_seconds") == NOW


def test_an_unknown_lag_is_absent(scrape, build) -> None:
    state = PartitionState(0, 1, 1, 1, {}, {("impressions", 0): 12, ("clicks", 0): -1001})
    got = scrape(build.snapshot(partitions=(state,)))
    assert got.labels("consumer_lag_records") == [{"topic": "impressions", "partition": "0"}]


def test_join_delays_are_a_cumulative_histogram(scrape, build) -> None:
    got = scrape(build.snapshot())
    assert [got.get("join_delay_seconds_bucket", le=le) for le in ("1.0", "60.0", "+Inf")] == [50, 80, 90]
    assert (got.get("join_delay_seconds_count"), got.get("join_delay_seconds_sum")) == (90, 1234.5)


def test_the_join_ratio_is_absent_when_it_is_not_known(scrape, build) -> None:
    join = build.snapshot().join
    got = scrape(build.snapshot(join=JoinHealth(False, "clicks stopped", None, 9, join.delays)))
    assert got.get("join_ratio") is None
    assert (got.get("join_reliable"), got.get("overdue_clicks")) == (0, 9)
    assert scrape(build.snapshot()).get("join_ratio") == 0.98


def test_a_version_past_its_ttl_leaves_every_family(scrape, build) -> None:
    seen = {"version_ttl": "1h"}
    got = scrape(build.snapshot(), **seen)
    assert 'model_version="v1"' in got.text
    assert 'model_version="v2"' not in got.text
    assert got.get("online_updates_total", model_name="ftrl") == 4800
    assert got.get("online_failures_total", model_name="ftrl", reason="not_finite") == 100
    assert got.get("online_failures_total", model_name="ftrl", reason="raised") == 0
    assert got.get("online_suspended_partitions", model_name="ftrl") == 1
    later = scrape(build.snapshot(), now=NOW + 3601, **seen)
    assert "model_version" not in later.text
    left = {line.partition("{")[0] for line in later.text.splitlines() if "ftrl" in line}
    # a suspended model is not seen any more: that must go on being said
    assert left == {"streameval_online_failures_total", "streameval_online_suspended_partitions"}
    assert 'model_version="v2"' in scrape(build.snapshot(), version_ttl="3h").text


def test_a_version_that_is_seen_again_comes_back(client_of, build) -> None:
    publisher, now = Publisher(build.snapshot()), [NOW]
    client = client_of(create_app(publisher, Server(version_ttl="1h"), version="1", clock=lambda: now[0]))
    now[0] += 7200
    assert "streameval_auc" not in client.get("/metrics").text
    publisher.publish(build.snapshot(2, last_seen=dict.fromkeys(publisher.latest().last_seen, now[0])))
    assert 'model_version="v2"' in client.get("/metrics").text


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
@pytest.mark.parametrize(
    "name",
    ['quo"te', "new\nline", "back\\slash\\n", "ünïcødé ☃ \U0001f600", "", " ", '{a="b"} 1', "#", "half \ud800 a pair"],
)
def test_hostile_names_survive_the_format(parse, client_of, build, name: str, accept: str) -> None:
    series = Series(name, name, "logged")
    results = (build.result(series), build.result(series, slice=("country", name)))
    app = create_app(Publisher(build.snapshot(results=results, last_seen={})), Server(), version="1")
    got = parse(client_of(app).get("/metrics", headers={"Accept": accept}).text, openmetrics=accept == OPENMETRICS)
    clean = name.encode("utf-8", "backslashreplace").decode()
    where = {"model_name": clean, "model_version": clean, "source": "logged"}
    assert got.get("impressions_total", **where) == results[0].totals.impressions
    assert got.get("slice_clicks_total", **where, slice="country", slice_value=clean) == results[1].totals.clicks


def test_very_long_names_are_cut_and_stay_apart(scrape, build) -> None:
    names = ["x" * 1_000_000, "x" * 999_999 + "y"]
    got = scrape(build.snapshot(results=tuple(build.result(slice=("country", name)) for name in names)))
    values = [labels["slice_value"] for labels in got.labels("slice_clicks_total")]
    assert len(set(values)) == 2
    assert all(len(value) == 200 for value in values)


def test_no_user_is_ever_in_a_label(scrape, build) -> None:
    snapshot = build.snapshot()
    text = scrape(snapshot).text
    for users in snapshot.users.values():
        assert not any(f"{user:016x}" in text or str(user) in text for user in users.user.tolist())


@pytest.mark.parametrize("max_series", [400, 1000, 5000])
def test_the_series_budget_holds_and_what_it_drops_is_counted(scrape, build, max_series: int) -> None:
    results = tuple(r for r in build.snapshot().results if r.slice is None) + build.many_slices(2000)
    got = scrape(build.snapshot(results=results, comparisons=(), deploys=()), max_series=max_series)
    ours = sum(len(samples) for name, samples in got.samples.items() if name.startswith("streameval_"))
    assert ours == got.get("series") <= max_series
    shown = {labels["slice_value"] for labels in got.labels("slice_impressions_total")}
    assert 0 < len(shown) < 2000
    assert got.get("series_dropped_total", family="streameval_slice_impressions_total") == 2000 - len(shown)
    # those with the most impressions stay, whole, in every family
    assert shown == {f"c{i:05d}" for i in range(2000 - len(shown), 2000)}
    for family in ("slice_clicks_total", "slice_auc", "slice_window_clicks"):
        assert {labels["slice_value"] for labels in got.labels(family)} == shown
    assert len(got.labels("auc")) == 5
    assert len(got.labels("bucket_clicks_total")) == 9


def test_slices_beyond_the_budget_are_counted_without_making_their_numbers(scrape, build) -> None:
    """With 64 versions and 200 values, a scrape would take seconds for what it leaves out."""
    read = []

    def lazily(result: Result) -> Result:
        def make() -> dict[str, float | int | None]:
            read.append(result.slice)
            return dict(result.metrics)

        return replace(result, metrics=MappingWhenRead(make))

    overall = tuple(r for r in build.snapshot().results if r.slice is None)
    results = overall + tuple(map(lazily, build.many_slices(2000)))
    got = scrape(build.snapshot(results=results, comparisons=(), deploys=()), max_series=1000)
    shown = {labels["slice_value"] for labels in got.labels("slice_impressions_total")}
    assert {value for _, value in read} == shown
    whole = scrape(build.snapshot(results=results[: len(overall) + 5], comparisons=(), deploys=()), max_series=10_000)
    for family in ("streameval_slice_auc", "streameval_slice_auc_stderr", "streameval_slice_window_clicks"):
        assert len(whole.labels(family.removeprefix("streameval_"))) == 5
        assert got.get("series_dropped_total", family=family) == 2000 - len(shown)


@pytest.mark.slow
def test_buckets_go_after_slices_and_before_models(scrape, build) -> None:
    series = [Series("default", f"v{i}", "logged") for i in range(8)]
    results = tuple(build.result(s, w) for s in series for w in ("5m", "all")) + build.many_slices(3)
    snapshot = build.snapshot(results=results, last_seen={}, comparisons=(), deploys=())
    whole = scrape(snapshot, max_series=10_000)
    assert whole.labels("series_dropped_total") == []
    seen = set()
    for most in range(100, 1_500, 25):
        tight = scrape(snapshot, max_series=most)
        slices, buckets, models = (
            len(tight.labels(name)) / len(whole.labels(name)) for name in ("slice_auc", "bucket_clicks_total", "auc")
        )
        assert slices == 0 or buckets == 1
        assert buckets == 0 or models == 1
        assert tight.get("pending_impressions") == 200
        seen |= {"some models"} if 0 < models < 1 else set()
        seen |= {"some buckets"} if 0 < buckets < 1 else set()
        seen |= {"all"} if slices == 1 else set()
    assert seen == {"some models", "some buckets", "all"}


def test_comparisons_are_gauges_with_bounds_and_a_verdict_is_a_set_of_states(scrape, build) -> None:
    got = scrape(build.snapshot())
    where = {"model_name": "default", "baseline_version": "v1", "candidate_version": "v2", "setup": "paired"}
    assert got.get("comparison_difference", **where, metric="auc") == -0.012
    assert got.get("comparison_lower_bound", **where, metric="auc") == -0.016
    assert got.get("comparison_upper_bound", **where, metric="auc") == pytest.approx(-0.008)
    assert got.get("comparison_margin", **where, metric="auc") == 0.002
    assert got.get("comparison_log_e", **where, metric="auc") == 9.5
    assert got.get("comparison_log_e", **where, metric="overall") == 8.1
    for metric, verdict in (("overall", "worse"), ("auc", "worse"), ("gauc", "undecided")):
        for one in ("worse", "not_worse", "undecided"):
            assert got.get("comparison_verdict", **where, metric=metric, verdict=one) == (one == verdict)
    assert got.get("comparison_difference", **where, metric="gauc") is None  # undefined is absent
    assert (got.get("comparison_impressions", **where), got.get("comparison_clicks", **where)) == (41_234, 802)
    assert got.get("comparison_withheld", **where) == 0
    decided = {
        name: got.get(f"comparison_decided_{name}", **where, metric="auc")
        for name in ("difference", "lower_bound", "upper_bound")
    }
    assert decided == {"difference": -0.018, "lower_bound": -0.026, "upper_bound": -0.01}
    assert got.get("comparison_decided_timestamp_seconds", **where, metric="auc") == NOW + 180
    assert got.get("comparison_supported", **where) == 1
    undecided = {**where, "setup": "split"}
    assert got.get("comparison_supported", **undecided) is None
    assert [one["setup"] for one in got.labels("comparison_decided_difference")] == ["paired"]
    assert got.get("comparison_start_timestamp_seconds", **where) == NOW
    assert got.get("deploy_timestamp_seconds", model_name="default", model_version="v2", kind="deploy") == NOW


def test_of_a_version_deployed_again_the_newest_comparison_and_deploy_are_shown(scrape, build) -> None:
    old, new = comparison(number=2), comparison("not_worse", number=4, start=1_714_566_000_000)
    deploys = (deploy(2), deploy(4), deploy(5, kind="rollback"))
    for order in ((old, new), (new, old)):
        got = scrape(build.snapshot(comparisons=order, deploys=deploys))
        assert len(got.labels("comparison_withheld")) == 1
        (now,) = [labels for labels in got.labels("comparison_verdict") if labels["metric"] == "overall" and labels["verdict"] == "not_worse"]  # fmt: skip
        assert got.get("comparison_verdict", **now) == 1
        assert got.get("deploy_timestamp_seconds", model_name="default", model_version="v2", kind="deploy") == NOW + 7200  # fmt: skip
        assert len(got.labels("deploy_timestamp_seconds")) == 2


def test_a_comparison_goes_with_its_candidate_and_not_with_its_baseline(scrape, build) -> None:
    def left(seen_v1: float, seen_v2: float) -> tuple[int, set[str]]:
        got = scrape(build.snapshot(last_seen={SERIES_1: seen_v1, SERIES_2: seen_v2}), version_ttl="1h")
        versions = {labels["model_version"] for labels in got.labels("deploy_timestamp_seconds")}
        return len(got.labels("comparison_withheld")), versions

    assert left(NOW, NOW) == (2, {"v1", "v2"})
    assert left(NOW - 4000, NOW) == (2, {"v2"})
    assert left(NOW, NOW - 4000) == (0, {"v1"})


def test_the_series_budget_cuts_the_oldest_comparisons_first(scrape, build) -> None:
    many = tuple(
        comparison(number=i, start=1_714_564_800_000 + i, candidate=Series("default", f"w{i}", "logged"))
        for i in range(40)
    )
    snapshot = build.snapshot(comparisons=many, deploys=())
    got = scrape(snapshot, max_series=1000)
    shown = {labels["candidate_version"] for labels in got.labels("comparison_withheld")}
    assert 5 < len(shown) < 40
    assert shown == {f"w{i}" for i in range(40 - len(shown), 40)}
    assert got.get("series_dropped_total", family="streameval_comparison_withheld") == 40 - len(shown)
    assert len(got.labels("auc")) == 5  # models stay
    assert got.labels("slice_auc") == []
    assert got.get("series") <= 1000


def test_numbers_without_a_value_are_absent_also_in_a_comparison(scrape, build) -> None:
    odd = comparison(metrics=(reading(difference=math.nan, lower=-math.inf, upper=None, log_e_worse=math.nan),))
    got = scrape(build.snapshot(comparisons=(odd,)))
    for family in ("comparison_difference", "comparison_lower_bound", "comparison_upper_bound"):
        assert got.labels(family) == []
    assert {labels["metric"] for labels in got.labels("comparison_log_e")} == {"overall"}


def test_a_standard_error_is_there_where_it_is_known(scrape, build) -> None:
    errors = {"auc": 0.01, "rig": 0.02, "gauc": None, "log_loss": math.nan, "mean_pclick": 0.001, "mse": 0.5}
    whole, part = replace(build.result(), stderrs=errors), build.result(slice=("country", "fr"))
    got = scrape(build.snapshot(results=(whole, replace(part, stderrs=errors))))
    assert got.get("auc_stderr", **V1, window="all") == 0.01
    assert got.get("normalized_entropy_stderr", **V1, window="all") == 0.02
    assert got.get("predicted_ctr_ratio_stderr", **V1, window="all") == 0.001
    where = {**V1, "slice": "country", "slice_value": "fr", "window": "all"}
    assert got.get("slice_normalized_entropy_stderr", **where) == 0.02
    found = {name for name in got.samples if name.endswith("_stderr")}
    assert found == {
        "streameval_auc_stderr", "streameval_normalized_entropy_stderr", "streameval_predicted_ctr_ratio_stderr",
        "streameval_slice_auc_stderr", "streameval_slice_normalized_entropy_stderr",
    }  # fmt: skip


def test_the_drop_counter_grows_with_every_snapshot_that_is_scraped(parse, client_of, build) -> None:
    publisher = Publisher(build.snapshot(1, results=build.many_slices(500)))
    app = create_app(
        publisher,
        Server(max_series=300),
        version="1",
        clock=lambda: NOW,
    )
    client = client_of(app)
    counts = []
    for number in (2, 3):
        counts.append(parse(client.get("/metrics").text).get("series_dropped_total", family="streameval_slice_auc"))
        publisher.publish(build.snapshot(number, results=build.many_slices(500)))
    assert counts[1] == 2 * counts[0] > 0


def test_a_correction_never_lowers_a_counter_and_lost_state_does(parse, client_of, build) -> None:
    def at(number: int, impressions: int, log_loss: float):
        result = replace(build.result(), totals=Totals(impressions, 10, 5.0, log_loss, 2.0, 3.0))
        return build.snapshot(number, results=(result,), taken_at=NOW + 61.0 * number)

    publisher = Publisher(at(1, 100, 50.0))
    client = client_of(create_app(publisher, Server(), version="1", clock=lambda: NOW))

    def losses() -> float | None:
        return parse(client.get("/metrics").text).get("log_loss_nats_total", **V1)

    seen = [losses()]
    for number, (impressions, log_loss) in enumerate(
        [(100, 49.0), (101, 49.5), (102, 51.0), (60, 20.0), (61, 21.0)], 2
    ):
        publisher.publish(at(number, impressions, log_loss))
        seen.append(losses())
    assert seen == [50.0, 50.0, 50.0, 51.0, 20.0, 21.0]


def test_checkpoints_are_told_by_their_oldest_partition_and_only_with_a_store(scrape, build) -> None:
    got = scrape(build.snapshot())
    assert got.get("checkpoint_last_success_timestamp_seconds") == NOW - 12.5
    assert (got.get("checkpoints_total"), got.get("checkpoint_failures_total"), got.get("restarts_total")) == (40, 1, 7)
    missing = scrape(build.snapshot(checkpoints=CheckpointState(oldest=NOW, never_written=1)))
    assert missing.get("checkpoint_last_success_timestamp_seconds") is None  # one partition has none at all
    assert missing.get("checkpoint_missing_partitions") == 1
    assert scrape(build.snapshot(checkpoints=None)).get("checkpoints_total") is None


def test_every_bounded_table_says_how_full_it_is(scrape, build) -> None:
    assert scrape(build.snapshot()).get("budget_used_ratio", table="users") == 0.5
