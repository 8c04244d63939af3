"""Files of the simulator, read back by the decoder of production; what becomes of each event, counted exactly."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streameval import app
from streameval.events.batch import Catalog
from streameval.settings.tree import Files, Settings
from streameval.simulate.encode import MALFORMED, events
from streameval.simulate.files import write_file
from streameval.simulate.scenario import Scenario, nasty_scenario
from streameval.simulate.traffic import Traffic
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder
from streameval.testing import carrying_all

CLEAN = replace(nasty_scenario(), duration_s=40.0, malformed=0.0)
LATER = 1_760_100_000_000  # a clock a day after the scenario


def decoded(path: Path) -> tuple[dict[str, np.ndarray], Counter[str]]:
    """(columns of all events, versions and features as text; dead letters by reason)."""
    catalog = Catalog(("country",))
    decoder = Decoder(catalog, clock=lambda: LATER, max_future=0, hashed=True, dicts=True)
    source = FileSource([path], decoder, Files(), 500, JsonlDeadLetters(""))
    parts: dict[str, list[np.ndarray]] = {}
    invalid: Counter[str] = Counter()
    while not source.finished:
        with carrying_all():
            batches = source.poll(0.0)
        for batch in batches:
            invalid.update(batch.invalid)
            i, c = batch.impressions, batch.clicks
            columns = {n: getattr(i, n) for n in ("id", "ts", "user", "request", "item", "pclick")}
            columns["position"] = i.fields["position"]
            columns |= {"click": c.id, "click_ts": c.ts, "shadow": i.shadow.pclick if i.shadow else np.empty(0)}
            columns["country"] = np.array([json.dumps(int(code)) for code in i.slices])
            columns["version"] = np.array([catalog.series[k].version for k in i.series])
            columns["features"] = np.array([json.dumps(d, sort_keys=True) for d in i.features.dicts])
            for name, column in columns.items():
                parts.setdefault(name, []).append(column)
    source.close()
    return {name: np.concatenate(columns) for name, columns in parts.items()}, invalid


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "jsonl.zst", "csv", "parquet"])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"t.{form}"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"No space left on device.*t\.{form}"):
        write_file(Traffic(CLEAN), path)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "jsonl.zst", "csv", "parquet"])
def test_a_clean_file_of_every_format_decodes_to_the_same_events_without_a_dead_letter(
    tmp_path: Path, form: str
) -> None:
    traffic = Traffic(CLEAN)
    impressions, clicks = write_file(traffic, tmp_path / f"t.{form}")
    got, invalid = decoded(tmp_path / f"t.{form}")
    assert not invalid
    assert (got["id"].size, got["click"].size) == (impressions, clicks)
    sent = list(events(traffic))
    shown = [e.fields for e in sent if e.kind == "impression"]
    assert got["ts"].tolist() == [f["ts"] for f in shown]
    assert got["pclick"].tolist() == [f["pclick"] for f in shown]
    assert got["position"].tolist() == [f["position"] for f in shown]
    assert got["version"].tolist() == [f["model_version"] for f in shown]
    assert got["shadow"].tolist() == [p for f in shown for p in f.get("predictions", {}).values()]
    assert got["click_ts"].tolist() == [e.fields["ts"] for e in sent if e.kind == "click"]
    write_file(traffic, tmp_path / "reference.jsonl")
    reference, _ = decoded(tmp_path / "reference.jsonl")
    for name, column in reference.items():
        assert np.array_equal(got[name], column), name
    assert len(set(got["features"].tolist())) > 100


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_every_malformed_message_is_a_dead_letter_of_its_own(number: int) -> None:
    decoder = Decoder(Catalog(()), clock=lambda: LATER, max_future=0)
    batch, letters = decoder.messages(
        [MALFORMED[number]], [1], topic=("impressions",), partition=0, offsets=[7], format="json", shared=False
    )
    assert len(batch) == 0
    assert [(letter.value, letter.offset) for letter in letters] == [(MALFORMED[number], 7)]


def test_malformed_lines_are_all_dead_letters_and_harm_no_other_event(tmp_path: Path) -> None:
    dirty = replace(CLEAN, malformed=0.05)
    write_file(Traffic(CLEAN), tmp_path / "clean.jsonl")
    write_file(Traffic(dirty), tmp_path / "dirty.jsonl")
    clean, _ = decoded(tmp_path / "clean.jsonl")
    got, invalid = decoded(tmp_path / "dirty.jsonl")
    bad = [e.raw for e in events(Traffic(dirty)) if e.raw is not None]
    assert sum(invalid.values()) == sum(raw != b"" for raw in bad) > 20  # an empty message is a blank line: skipped
    assert set(bad) == set(MALFORMED)
    for name, column in clean.items():
        assert np.array_equal(got[name], column), name


@pytest.mark.parametrize("shuffle_s", [0.0, 10.0])
@pytest.mark.slow
def test_what_becomes_of_every_click_is_exactly_what_the_scenario_says(tmp_path: Path, shuffle_s: float) -> None:
    scenario = Scenario(
        duration_s=120, rate=300, window_s=60, late_share=0.1, unmatched=0.07, duplicate=0.05, shuffle_s=shuffle_s
    )
    traffic = Traffic(scenario)
    write_file(traffic, tmp_path / "t.jsonl")
    copies = Counter((e.kind, e.fields["impression_id"]) for e in events(traffic))
    once: Counter[str] = Counter()
    again: Counter[str] = Counter()
    for block in traffic.blocks():
        for number in block.number.tolist():
            once["impressions"] += 1
            again["impressions"] += copies["impression", f"imp-{number}"] - 1
        for j, i in enumerate(block.click_of.tolist()):
            known = bool(block.click_known[j])
            fate = "unmatched" if not known else "late" if block.click_ts[j] - block.ts[i] > 60_000 else "matched"
            once[fate] += 1
            again[fate] += copies["click", f"{'imp' if known else 'lost'}-{block.number[i]}"] - 1
    settings = Settings.model_validate(
        {
            "join": {"attribution_window": "1m", "allowed_lateness": "15s", "correction_horizon": "12m"},
            "windows": {"pane": "10s", "sliding": ["1m"]},
            "files": {"dead_letters": ""},
        }
    )
    counts = app.replay(settings, [tmp_path / "t.jsonl"]).events
    assert counts["impressions"] == once["impressions"]
    assert counts["duplicate_impressions"] == again["impressions"] > 100
    # a copy of a late or unmatched click is late or unmatched again
    assert counts["late_clicks"] == once["late"] + again["late"] > 100
    assert counts["unmatched_clicks"] == once["unmatched"] + again["unmatched"] > 100
    assert counts["duplicate_clicks"] == again["matched"] > 20
    assert counts["matched_clicks"] == once["matched"] > 500
    assert counts["late_impressions"] == 0


def test_a_name_that_tells_no_format_is_refused_with_the_formats_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"t\.xls: the format cannot be told; name it \.jsonl"):
        write_file(Traffic(CLEAN), tmp_path / "t.xls")
    assert list(tmp_path.iterdir()) == []
