"""/metrics as scrapers see it: formats, names, documentation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from streameval.compare.reading.handling import Handling
from streameval.compare.reading.reading import Mix
from streameval.events.batch import Series
from streameval.metrics.strata import Stratum
from streameval.results.certificate import CertificateState
from streameval.results.outlets import ReceiverState, SinkState
from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.server.prometheus.families import FAMILIES
from streameval.settings.server import Server
from tests.comparisons import comparison

DOCS = Path(__file__).parents[3] / "docs"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
NOW = 1_714_564_800.0


def test_the_format_follows_what_the_scraper_asks_for(parse, client) -> None:
    plain = client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    modern = client.get("/metrics", headers={"Accept": OPENMETRICS + ";q=0.5,text/plain;q=0.1"})
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert modern.text.endswith("# EOF\n")
    one, other = parse(plain.text), parse(modern.text, openmetrics=True)
    changing = re.compile("process_|python_|streameval_collect_duration")
    assert {n: s for n, s in one.samples.items() if not changing.match(n)} == {
        n: s for n, s in other.samples.items() if not changing.match(n)
    }


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [
        ("gzip", True), ("gzip, deflate", True), ("deflate;q=0.5, GZIP;q=0.8", True), ("gzip;q=1.0", True), ("", False),
        ("identity", False), ("gzip;q=0", False), ("deflate, gzip; q=0.000", False), ("x-gzipped", False), (";;,=", False),
    ],
)  # fmt: skip
def test_an_exposition_is_compressed_where_the_scraper_takes_that(client, accepted: str, zipped: bool) -> None:
    answer = client.get("/metrics", headers={"Accept-Encoding": accepted})  # the client unpacks it
    assert (answer.headers.get("content-encoding") == "gzip") == zipped
    assert "streameval_auc{" in answer.text
    assert "Accept-Encoding" in answer.headers["vary"]
    sent = int(answer.headers["content-length"])
    assert sent < len(answer.content) / 5 if zipped else sent == len(answer.content)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/openmetrics-text",
        "application/openmetrics-text;version=",
        "application/openmetrics-text; version=x",
        "application/openmetrics-text; version=1.0.0; escaping=nope",
        "text/plain; version=..",
        "text/plain;version=9",
        ";;;,,,=",
    ],
)
def test_no_accept_header_makes_a_scrape_fail(client, accept: str) -> None:
    answer = client.get("/metrics", headers={"Accept": accept})
    assert answer.status_code == 200
    assert "streameval_auc{" in answer.text


def test_there_is_no_redirect_and_no_created_series(client) -> None:
    answer = client.get("/metrics")
    assert answer.history == []
    assert "_created" not in answer.text


def test_every_family_in_the_table_is_scraped_from_a_full_snapshot(parse, client_of, build) -> None:
    first, *others = build.snapshot().results
    objectives = [build.result(Series("default", "v1", "logged", "long"), window) for window in ("all", "5m")]
    strata = [Stratum(at / 2, (at + 1) / 2, 500, 20, 0.17, 1.0, 0.7 + at / 10, 0.001, 900.0) for at in range(2)]
    first = replace(first, strata=strata)
    mixes = (Mix("propensity", "auc", -0.012, 0.001, -0.013, 0.004, False),)
    said = Handling("muted", "ana", "known", int(1000 * NOW), "worse")
    snapshot = build.snapshot(
        results=(first, *others, *objectives), comparisons=(comparison(setup="paired", mixes=mixes, handling=said),)
    )
    snapshot = replace(
        snapshot,
        receivers=(ReceiverState("on-call", "webhook", True, 1, NOW, 2, 3, 4, 5, ""),),
        sinks=(SinkState("lake", "parquet", 1, NOW, 2, 3, 4, 5, ""),),
        external_url="https://monitor.example",
        certificate=CertificateState(1.0, 2.0),
        unread=(("clicks", 1),),
        ready={"broker": True},
    )

    def scraped(most: int) -> str:
        app = create_app(Publisher(snapshot), Server(max_series=most), version="1", clock=lambda: NOW)
        return str(client_of(app).get("/metrics").text)

    needed = int(re.search(r"^streameval_series (\d+)", scraped(10_000), re.MULTILINE)[1])
    cut = sum(family.labels[:1] == ("model_name",) for family in FAMILIES)  # each has room kept for its counter
    text = scraped(needed + cut - 1)  # the last group does not fit
    types = dict(re.findall(r"^# TYPE (streameval_\S+) (\w+)$", text, re.MULTILINE))
    assert types == {family.exposed: family.kind for family in FAMILIES}
    got = parse(text)
    for family in FAMILIES:
        if family.kind != "histogram":
            assert all(set(labels) == set(family.labels) for labels in got.labels(family.name)), family.name


def test_every_family_is_documented_with_its_type_and_labels_and_every_documented_family_exists(client) -> None:
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("reference/prometheus.md", "prometheus.md"))
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", text, re.MULTILINE)
    ours = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in rows
        if name.startswith("streameval")
    }
    assert ours == {family.exposed: (family.kind, family.labels) for family in FAMILIES}
    others = {name for name, *_ in rows} - set(ours)
    scraped = set(re.findall(r"^# TYPE (\S+) ", client.get("/metrics").text, re.MULTILINE))
    assert others == {name for name in scraped if not name.startswith("streameval_")}


def test_no_family_name_breaks_the_rules() -> None:
    names = [family.exposed for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert re.fullmatch(r"streameval_[a-z][a-z_]*", family.exposed)
        assert family.exposed.endswith("_total") == (family.kind == "counter")
        assert "le" not in family.labels
        assert family.meaning.endswith(".")


@pytest.mark.promtool
@pytest.mark.parametrize("full", [True, False])
def test_promtool_finds_nothing_wrong(client_of, build, full: bool) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("STREAMEVAL_REQUIRE_ALL") == "1":
            pytest.fail("promtool is missing; install Debian's package `prometheus`")
        pytest.skip("promtool is missing: /metrics was not linted; install Debian's package `prometheus`")
    snapshot = build.snapshot() if full else empty_snapshot(0.0)
    text = client_of(create_app(Publisher(snapshot), Server(), version="1", clock=lambda: NOW)).get("/metrics").text
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, text=True, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
