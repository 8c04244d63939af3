"""Settings: defaults as documented, TOML and environment, and one line for every mistake."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from streameval.commands import cli
from streameval.events.batch import Catalog
from streameval.settings.toml import load, to_toml
from streameval.settings.tree import ConfigError, Settings
from streameval.settings.units import format_duration, parse_duration, parse_size

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
SIZES = ("memory", "max_message", "max_size")


def loaded(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "streameval.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ)


def error_of(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as failure:
        loaded(tmp_path, text, environ)
    return str(failure.value)


# -- where settings come from ------------------------------------------------------------------------------------


LISTS = {"models", "objectives", "notify", "sinks"}  # of tables: [[models]]


def test_the_defaults_are_those_that_the_docs_name() -> None:
    documented: dict[str, object] = {}
    section = ""
    for row in DOCS.read_text().splitlines():
        if found := re.match(r"##+ `\[+([a-z_.]+)\]+`", row):
            section = found[1]
        elif (
            found := re.match(r"\| `(\w+)` \| .+? \| `(.+?)` \|", row)
        ) and section in Settings.model_fields.keys() - LISTS - {"source"}:
            default = tomllib.loads(f"v = {found[2]}")["v"]
            documented[f"{section}.{found[1]}"] = parse_size(default) if found[1] in SIZES else default
    tree = Settings().model_dump(mode="json")
    assert [tree.pop(name) for name in sorted(LISTS)] == [[]] * len(LISTS)
    assert tree.pop("source") == {"kind": "kafka"}
    actual = {f"{section}.{key}": value for section, keys in tree.items() for key, value in keys.items()}
    assert (actual.pop("strata.by"), documented.pop("strata.by")) == ("", "propensity")  # the section turns it on
    assert documented == actual
    assert load() == Settings()


def test_the_defaults_mean_what_the_design_says() -> None:
    s = Settings()
    assert (s.join.attribution_window, s.join.allowed_lateness, s.join.correction_horizon) == (
        30 * 60_000,
        60_000,
        24 * 3_600_000,
    )
    assert s.windows.sliding == (5 * 60_000, 3_600_000, 24 * 3_600_000)
    assert s.users.memory == 512_000_000


def test_a_file_overrides_defaults_and_the_environment_overrides_the_file(tmp_path: Path) -> None:
    text = '[join]\nattribution_window = "10m"\nallowed_lateness = "2m"\n[slices]\ndimensions = ["country"]\n'
    environ = {
        "STREAMEVAL_JOIN__ATTRIBUTION_WINDOW": "20m",
        "STREAMEVAL_SERVER__PORT": "9000",
        "STREAMEVAL_WINDOWS__SLIDING": '["2m", "10m"]',
        "STREAMEVAL_USERS__WEIGHTING": "clicks",
        "STREAMEVAL_KAFKA__CLIENT_OPTIONS__LINGER": "5",
        "STREAMEVAL_FILES__DEAD_LETTERS": "",
        "PATH": "/bin",
        "STREAMEVAL_TEST_KAFKA": "x",
    }
    s = loaded(tmp_path, text, environ)
    assert s.join.attribution_window == 20 * 60_000
    assert s.join.allowed_lateness == 2 * 60_000
    assert s.slices.dimensions == ("country",)
    assert s.server.port == 9000
    assert s.windows.sliding == (120_000, 600_000)
    assert s.users.weighting == "clicks"
    assert s.kafka.client_options == {"linger": 5}
    assert s.files.dead_letters == ""
    assert load(None, {"STREAMEVAL_BATCH__MAX_EVENTS": "7"}).batch.max_events == 7


def test_a_name_from_the_environment_stays_text_whatever_it_looks_like() -> None:
    s = load(None, {"STREAMEVAL_KAFKA__GROUP_ID": "42", "STREAMEVAL_FILES__DEAD_LETTERS": "2024-01-01",
                    "STREAMEVAL_KAFKA__CLICKS_TOPIC": "true", "STREAMEVAL_KAFKA__IMPRESSIONS_TOPIC": '"quoted"'})  # fmt: skip
    assert s.kafka.group_id == "42"
    assert s.files.dead_letters == "2024-01-01"
    assert s.kafka.clicks_topic == "true"
    assert s.kafka.impressions_topic == "quoted"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert loaded(tmp_path, "\ufeff[server]\r\nport = 81\r\n").server.port == 81


# -- durations and sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("7d", 604_800_000), ("1.5h", 5_400_000),
     (" 2 m ", 120_000), ("0s", 0), (0, 0), ("36500d", 3_153_600_000_000), ("0.1s", 100)],
)  # fmt: skip
def test_durations_are_milliseconds(text: object, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["-5m", "5", 5, 5.0, "5 minutes", "m", "", "5M", "1e3s", True, False, None, ["5m"], "inf", "∞s",
                                  "36501d", "9" * 400 + "d"])  # fmt: skip
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_duration(text)


@given(ms=st.integers(0, 3_153_600_000_000))
def test_every_duration_comes_back_from_its_text(ms: int) -> None:
    text = format_duration(ms)
    assert parse_duration(text) == ms
    assert re.fullmatch(r"\d+(ms|s|m|h|d)", text)


@given(count=st.integers(0, 30_000), unit=st.sampled_from(["ms", "s", "m", "h", "d"]), space=st.sampled_from(["", " "]))
def test_whole_counts_of_every_unit_are_exact(count: int, unit: str, space: str) -> None:
    size = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
    assert parse_duration(f"{count}{space}{unit}") == count * size
    assert len(format_duration(count * size)) <= len(f"{count}{unit}") or unit == "d"


@given(text=st.text(max_size=12) | st.integers() | st.floats() | st.booleans())
def test_a_duration_is_a_number_or_a_value_error_and_nothing_else(text: object) -> None:
    try:
        ms = parse_duration(text)
    except ValueError:
        return
    assert isinstance(ms, int)
    assert ms >= 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("512MB", 512_000_000), ("2GiB", 2 << 30), ("1.5kB", 1500), ("16 MiB", 16 << 20), ("1B", 1), (1000, 1000)],
)
def test_sizes_are_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["12", "MB", "-1MB", "5XB", 0, -1, "0MB", "0.1B", True, 1.5, None, "9" * 400 + "GB", 10**30]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_size(text)


# -- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # unknown keys
        ("[join]\nwindow = 1", "join.window = 1: unknown key; `streameval config show` lists the known ones"),
        ("[jion]\na = 1", 'jion = {"a": 1}: unknown key; did you mean join? `streameval config show` lists the known ones'),
        ('[strata]\nbi = "popularity"', 'strata.bi = "popularity": unknown key; did you mean strata.by? `streameval config'),
        ('[strata]\nctu = "width"', 'strata.ctu = "width": unknown key; did you mean strata.cut? `streameval config'),
        ('[kafka]\nbootstrap_server = "k:1"', 'kafka.bootstrap_server = "k:1": unknown key; did you mean kafka.bootstrap_servers? `streameval config'),
        ("[ftrl]\na = 1", 'ftrl = {"a": 1}: unknown key'),
        ("models_ = 1", "models_ = 1: unknown key"),
        ('[[models]]\nname = "a"\nkind = "ftrl"\nrate = 1', "models.0.rate = 1: unknown key"),
        # wrong types
        ("join = 5", "join = 5: must be a section"),
        ("[join]\nattribution_window = 30", 'join.attribution_window = 30: must be a duration such as "30s"'),
        ('[server]\nport = "http"', 'server.port = "http": must be a valid integer'),
        ("[server]\nport = 80.5", "server.port = 80.5: must be a valid integer"),
        ("[server]\nport = true", "server.port = true: must be a number, not true or false"),
        ("[buckets]\nedges = [true]", "buckets.edges.0 = true: must be a number, not true or false"),
        ("[kafka]\ngroup_id = 42", "kafka.group_id = 42: must be a string; write it in quotes"),
        ('[slices]\ndimensions = "country"', 'slices.dimensions = "country": must be a list, for example ["country"]'),
        ('[windows]\nsliding = "5m, 1h"', 'windows.sliding = "5m, 1h": must be a list, for example ["5m", "1h"]'),
        ('[windows]\nsliding = ""', 'windows.sliding = "": must be a list, for example []'),
        ('[join]\nattribution_window.x = 3', 'join.attribution_window = {"x": 3}: must be a duration such as "30s"'),
        ('[join]\nattribution_window = "٥m"', 'join.attribution_window = "٥m": must be a duration such as "30s"'),
        ('[join]\nmax_future = "0.001ms"', 'join.max_future = "0.001ms": must be a duration of at least "1ms", or 0'),
        ("[ranking]\nk = 5", "ranking.k = 5: must be a list, for example [5]"),
        ("[auction]\npoints = 5", "auction.points = 5: must be [[auction.points]] tables, each with a name and its reserves"),
        ("[slices]\ndimensions = [1]", "slices.dimensions.0 = 1: must be a string"),
        ("[kafka]\nclient_options = 3", "kafka.client_options = 3: must be a table"),
        ("models = 5", "models = 5: must be [[models]] tables"),
        ("objectives = 5", "objectives = 5: must be [[objectives]] tables"),
        ('[[objectives]]\nname = "a"', "objectives.0.value_at_least: is required"),
        ('[[objectives]]\nvalue_at_least = 1', "objectives.0.name: is required"),
        ('[[objectives]]\nname = "a"\nvalue_at_least = 0', "objectives.0.value_at_least = 0: must be greater than 0"),
        ('[[objectives]]\nname = "*"\nvalue_at_least = 1', 'objectives.0.name = "*": cannot be queried'),
        ('[[objectives]]\nname = "a"\nvalue_at_least = 1\nversions = []', "objectives.0.versions = []: matches no version"),
        (
            '[[objectives]]\nname = "a"\nvalue_at_least = 1\n[[objectives]]\nname = "a"\nvalue_at_least = 2',
            'objectives: the name "a" is given twice',
        ),
        ('[models]\nname = "a"', 'models = {"name": "a"}: must be [[models]] tables'),
        ('[[models]]\nname = "a"', 'models.0.kind: is required; must be "ftrl" or "river"'),
        ('[[models]]\nkind = "ftrl"', "models.0.name: is required"),
        ('[[models]]\nname = "a"\nkind = "river"', "models.0.factory: is required"),
        ('[source]\nkind = "pipe"', 'source.kind = "pipe": must be "kafka"'),
        ('[source]\npath = "/tmp/x"', 'source.kind: is required; must be "kafka"'),
        ('[source]\nkind = "kafka"\npath = "/tmp/x"', 'source.path = "/tmp/x": unknown key'),
        # out of range
        ('[join]\nattribution_window = "-5m"', 'join.attribution_window = "-5m": must be a duration such as "30s"'),
        ('[join]\nidle_timeout = "0s"', 'join.idle_timeout = "0s": must be positive, for example "5m"'),
        ('[join]\nmax_future = "99999d"', 'join.max_future = "99999d": must be at most "36500d"'),
        ("[join]\nmax_pending = 1", "join.max_pending = 1: must be greater than or equal to 1000"),
        ("[server]\nport = 70000", "server.port = 70000: must be less than or equal to 65535"),
        ('[users]\nmemory = "lots"', 'users.memory = "lots": must be a size such as "512MB"'),
        ('[users]\nmemory = "0MB"', 'users.memory = "0MB": must be from 1 byte'),
        ('[users]\nweighting = "views"', "users.weighting = \"views\": must be 'impressions', 'clicks', 'uniform' or 'value'"),
        ('[kafka]\ngroup_id = ""', 'kafka.group_id = "": must not be ""'),
        ('[[models]]\nname = "a"\nkind = "ftrl"\nalpha = inf', "models.0.alpha = Infinity: must be a finite number"),
        ('[[models]]\nname = "a"\nkind = "ftrl"\nalpha = 0', "models.0.alpha = 0: must be greater than 0"),
        ('[[models]]\nname = "a"\nkind = "tree"', 'models.0.kind = "tree": must be "ftrl" or "river"'),
        ("[buckets]\nedges = []", "buckets.edges: 0 given; must be between 1 and 64"),
        ("[buckets]\nedges = [0.0, 0.5]", "buckets.edges = [0.0, 0.5]: must increase strictly inside (0, 1)"),
        ("[buckets]\nedges = [0.5, 0.1]", "buckets.edges = [0.5, 0.1]: must increase strictly inside (0, 1)"),
        ('[windows]\nsliding = ["5x"]', 'windows.sliding.0 = "5x": must be a duration'),
        ("[metrics]\noperating_range = [0.1, 0.1]", "metrics.operating_range = [0.1, 0.1]: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = [0.5, 0.1]", "metrics.operating_range = [0.5, 0.1]: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = [-0.1, 0.1]", "metrics.operating_range = [-0.1, 0.1]: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = [0.0, 1.1]", "metrics.operating_range = [0.0, 1.1]: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = [0.1]", "metrics.operating_range = [0.1]: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = [0.0, 0.1, 0.2]", "metrics.operating_range = [0.0, 0.1, 0.2]: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = 0.1", "metrics.operating_range = 0.1: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = [true, 1]", "metrics.operating_range = [true, 1]: must be two false positive rates from 0 to 1"),
        ("[metrics]\noperating_range = [0.0, nan]", "metrics.operating_range = [0.0, NaN]: must be two false positive rates from 0 to 1"),
        ("[metrics]\nthreshold = 1.5", "metrics.threshold = 1.5: must be less than or equal to 1"),
        ("[metrics]\nthreshold = -0.1", "metrics.threshold = -0.1: must be greater than or equal to 0"),
        ("[metrics]\ncost_ratio = 0", "metrics.cost_ratio = 0: must be greater than 0"),
        ("[metrics]\ncost_ratio = inf", "metrics.cost_ratio = Infinity: must be a finite number"),
        # at odds with each other
        ('[compare]\nhorizon = "20m"', 'compare.horizon = "20m": must be longer than min_duration = "1h"'),
        ('[join]\ncorrection_horizon = "10m"', 'join.correction_horizon = "10m": must be at least attribution_window + request_gap'),
        ('[windows]\npane = "999ms"', 'windows.pane = "999ms": must be at least "1s": every pane costs time'),
        ('[compare]\ngauc_window = "90s"', 'compare.gauc_window = "90s": must be a multiple of windows.pane = "1m", for example "2m"'),
        ("[ranking]\nk = [1, 0]", "ranking.k = [1, 0]: 0 must be between 1 and 1000; [] turns ranking metrics off"),
        ("[ranking]\nk = [5, 5]", "ranking.k = [5, 5]: names a cut twice"),
        ('[ranking]\nby_user = ["ndcg"]', 'ranking.by_user = ["ndcg"]: "ndcg" is no ranking metric; there are ndcg_1, map_1'),
        ('[ranking]\nk = []\nby_user = ["mrr"]', 'ranking.by_user = ["mrr"]: "mrr" is no ranking metric; there are none'),
        ('[ranking]\nby_user = ["mrr", "mrr"]', 'ranking.by_user = ["mrr", "mrr"]: names a metric twice'),
        ('[windows]\nsliding = ["90s"]', 'windows.sliding = "90s": must be a multiple of pane = "1m"'),
        ('[windows]\nsliding = ["5m", "300s"]', "windows.sliding: names a window twice"),
        ('[slices]\ndimensions = ["a", "a"]', 'slices.dimensions = ["a", "a"]: names a dimension twice'),
        ('[slices]\ndimensions = [""]', 'slices.dimensions = [""]: must not hold ""'),
        ('[slices]\ndimensions = ["none"]', 'slices.dimensions = ["none"]: "none" cannot be queried; must not be'),
        ('[slices]\ndimensions = ["a", "a:b"]', 'slices.dimensions = ["a", "a:b"]: "a:b" cannot be queried'),
        ('[kafka]\ndead_letter_topic = "clicks"', 'kafka.dead_letter_topic = "clicks": must be a different topic from clicks'),
        ('[kafka]\ndead_letter_topic = "i"\nimpressions_topic = "i"', 'kafka.dead_letter_topic = "i": must be a different'),
        ('[store]\npath = "s"\n[[sinks]]\nkind = "kafka"\nto = "impressions"', 'sinks.0.to = "impressions": must be a different topic from kafka.impressions_topic'),
        (
            '[store]\npath = "s"\n[kafka]\nclicks_topic = "c"\n[[sinks]]\nkind = "kafka"\nto = "ok"\n[[sinks]]\nkind = "kafka"\nname = "b"\nto = "c"',
            'sinks.1.to = "c": must be a different topic from kafka.clicks_topic, which is an input',
        ),
        ('[[notify]]\nkind = "webhook"\nurl_file = "u"\n' * 21, "notify: 21 [[notify]] tables; at most 20 are allowed"),
        *((f'[kafka]\nbootstrap_servers = "{text}"', f'kafka.bootstrap_servers = "{text}": must be host:port; separate several')
          for text in ("", "a:9092,", "a b:9092", "a:port", "a:0", "a:65536", "a:9092;b:9092", "http://a:9092/x", "u@a:9092")),
        ('[kafka]\nimpressions_topic = ""', 'kafka.impressions_topic = "": must not be ""'),
        ('[kafka]\nimpressions_topic = "a b"', 'kafka.impressions_topic = "a b": must be at most 249 letters, digits, dots'),
        ('[kafka]\nimpressions_topic = "a\\n"', 'kafka.impressions_topic = "a\\n": must be at most 249 letters, digits, dots'),
        ('[kafka]\nclicks_topic = ".."', 'kafka.clicks_topic = "..": must be at most 249 letters'),
        ('[kafka]\ndead_letter_topic = "é"', 'kafka.dead_letter_topic = "é": must be at most 249 letters'),
        ('[store]\npath = "s"\n[[sinks]]\nkind = "kafka"\nto = "a/b"', 'sinks.0.to = "a/b": must be at most 249 letters'),
        ('[[notify]]\nkind = "email"\nhost = "h"\nsender = "a@b"\nto = []', "notify.0.to = []: must not be empty; give at least one"),
        ('[slices]\ndimensions = ["a","b","c","d","e","f","g"]\nmax_values = 1000', "slices.dimensions = ["),
        ('[[models]]\nname = "a"\nkind = "ftrl"\n' * 2, 'models: the name "a" is given twice'),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_the_key_the_value_and_what_would_be_right(
    tmp_path: Path, text: str, says: str
) -> None:
    message = error_of(tmp_path, text)
    assert message.startswith(says)
    assert "\n" not in message


def test_every_mistake_has_its_own_line(tmp_path: Path) -> None:
    message = error_of(tmp_path, '[join]\nwindow = 1\nmax_future = "x"\n[server]\nport = -1\nhosts = "a"\n')
    assert sorted(line.split(" = ")[0] for line in message.splitlines()) == [
        "join.max_future", "join.window", "server.hosts", "server.port",
    ]  # fmt: skip


def test_a_long_or_odd_value_still_makes_one_line(tmp_path: Path) -> None:
    message = error_of(tmp_path, '[join]\nscore_at = "' + "x" * 5000 + '\\n"\n')
    assert len(message) < 400
    assert "\n" not in message
    assert error_of(tmp_path, "[join]\nscore_at = 2024-01-01").startswith('join.score_at = "2024-01-01": must be')


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("STREAMEVAL_JOIN__WINDOW", "5m", 'join.window = "5m": unknown key'),
        ("STREAMEVAL_SERVER__PORT", "http", 'server.port = "http": must be a valid integer'),
        ("STREAMEVAL_SERVER__PORT", "5\nhost = 3", 'server.port = "5\\nhost = 3": must be a valid integer'),
        ("STREAMEVAL_PORT", "5", 'STREAMEVAL_PORT = "5": must name a section and a key, for example STREAMEVAL_JOIN__'),
        ("STREAMEVAL_MODELS__0__NAME", "a", "models = {"),
    ],
)
def test_a_mistake_in_the_environment_is_one_line_too(tmp_path: Path, name: str, value: str, says: str) -> None:
    message = error_of(tmp_path, "", {name: value})
    assert message.startswith(says)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ('[server]\ntoken = "hunter2"', {}),
        ('[kafka]\npassword = "hunter2"', {}),
        ('[kafka]\nsasl_password = "hunter2"', {}),
        ('[kafka]\nclient_options = "sasl.password=hunter2"', {}),
        ('[kafkas.client_options]\n"ssl.key.password" = "hunter2"', {}),
        ("", {"STREAMEVAL_KAFKA__PASSWORD": "hunter2"}),
        ("", {"STREAMEVAL_PASSWORD": "hunter2"}),
        ("", {"STREAMEVAL_KAFKA__CLIENT_OPTIONS": '{"sasl.password": "hunter2"}'}),
        ("kafka = 1", {"STREAMEVAL_KAFKA__PASSWORD": "hunter2"}),
    ],
)
def test_a_password_where_none_belongs_is_not_in_the_error(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    message = error_of(tmp_path, text, environ)
    assert "hunter2" not in message
    assert "..." in message


@pytest.mark.parametrize("key", ["token_file", "token_scope"])
def test_where_a_secret_is_may_be_shown(tmp_path: Path, key: str) -> None:
    assert f"server.{key} = 17" in error_of(tmp_path, f"[server]\n{key} = 17", {})


def test_the_environment_cannot_go_below_what_is_no_section(tmp_path: Path) -> None:
    message = error_of(tmp_path, "join = 1", {"STREAMEVAL_JOIN__SCORE_AT": "label"})
    assert message == 'STREAMEVAL_JOIN__SCORE_AT = "label": "join" is no section in the TOML file; write it as [join]'


def test_a_file_that_is_missing_or_no_toml_or_no_text_is_one_line_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as failure:
        load(tmp_path / "no.toml")
    assert str(failure.value) == f"{tmp_path / 'no.toml'}: no such file; give the path of a TOML file"
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    message = error_of(tmp_path, "[join]\nattribution_window = 30m\n")
    assert message.startswith(f"{tmp_path / 'streameval.toml'}: not valid TOML: ")
    assert "line 2" in message
    (tmp_path / "streameval.toml").write_bytes(b"[join]\n# \xff\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "streameval.toml")


@given(count=st.integers(0, 40), values=st.integers(1, 1000))
def test_slices_that_are_accepted_can_be_numbered(count: int, values: int) -> None:
    names = [f"d{i}" for i in range(count)]
    try:
        settings = Settings.model_validate({"slices": {"dimensions": names, "max_values": values}})
    except ValueError:
        with pytest.raises(ValueError, match="too many combinations"):
            Catalog(names, values)
        return
    Catalog(settings.slices.dimensions, settings.slices.max_values)


@pytest.mark.parametrize("topic", ["a", "-", "a.", ".a", "...", "x" * 249])
def test_whatever_kafka_takes_as_a_topic_is_one(topic: str) -> None:
    assert Settings.model_validate({"kafka": {"clicks_topic": topic}}).kafka.clicks_topic == topic


@pytest.mark.parametrize("topic", [".", "..", "x" * 250, "a b", "ä"])
def test_what_kafka_takes_as_no_topic_is_none(tmp_path: Path, topic: str) -> None:
    assert "kafka.clicks_topic" in error_of(tmp_path, f'[kafka]\nclicks_topic = "{topic}"')


# -- written out again -------------------------------------------------------------------------------------------

ODD = 'é "quoted" \\ 日本 \U0001f600 \x7f\x01\n\t'


def test_the_defaults_written_out_are_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, to_toml(Settings())) == Settings()


@pytest.mark.parametrize(("k", "by_user"), [([3], ("mrr",)), ([], ()), ([1, 10], ("ndcg_10", "hit_rate_1", "mrr"))])
def test_of_the_default_averages_by_user_those_are_taken_that_there_are(k: list[int], by_user: tuple[str, ...]) -> None:
    ranking = Settings.model_validate({"ranking": {"k": k}}).ranking
    assert ranking.by_user == by_user
    assert Settings.model_validate({"ranking": ranking.model_dump()}).ranking == ranking


def test_everything_that_can_be_set_survives_being_written_out(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "join": {"attribution_window": "90s", "score_at": "label", "max_pending": 5000, "request_gap": 0},
            "windows": {"pane": "1500ms", "sliding": ["3s", "90s", "1d"]},
            "slices": {"dimensions": ["country", ODD], "max_values": 3},
            "users": {"memory": "1.5GiB", "weighting": "uniform"},
            "buckets": {"edges": [1e-9, 0.1, 1 - 1e-12], "quantiles": 7},
            "models": [
                {"name": ODD, "kind": "ftrl", "alpha": 1e-300, "l1": 1e16},
                {"name": "lr", "kind": "river", "factory": "a.b:c",
                 "parameters": {"x y": [1, "2", {"k": True}], "inf": math.inf, "low": -math.inf, "none": {}, ODD: 0.1}},
            ],
            "kafka": {"client_options": {"security.protocol": "SSL", "n": 5, "f": 1e22, "t": {"a.b": ODD}}},
            "files": {"columns": {"ts": {"column": "t", "unit": "s"}, "features": ["C*"], "delimiter": "\t"}},
            "server": {"token_file": ODD, "port": 0},
        }
    )  # fmt: skip
    assert loaded(tmp_path, to_toml(settings)) == settings


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    number=st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    window=st.integers(1, 10**9),
)
def test_any_text_number_and_duration_survive_being_written_out(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: float, window: int
) -> None:
    settings = Settings.model_validate(
        {
            "join": {"max_future": format_duration(window)},
            "files": {"dead_letters": text},
            "kafka": {"client_options": {text: number, "list": [text, number]}},
        }
    )
    again = loaded(tmp_path_factory.mktemp("toml"), to_toml(settings))
    assert again == settings
    assert repr(again.kafka.client_options) == repr(settings.kafka.client_options), "1 is not 1.0 or true"


# -- the commands ------------------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streameval", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_config_check_exits_0_on_good_settings_1_on_bad_ones_and_2_on_wrong_usage(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('[join]\nattribution_window = "5m"\n')
    bad.write_text('[join]\nattribution_window = "soon"\nwindow = 1\n')
    fine = run("config", "check", "-c", str(good))
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, "the settings are valid\n", "")
    wrong = run("config", "check", "-c", str(bad))
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.splitlines() == [
        'streameval: join.attribution_window = "soon": must be a duration such as "30s", "5m" or "24h"',
        "join.window = 1: unknown key; `streameval config show` lists the known ones",
    ]
    misused = run("config", "check", "--no-such-option")
    assert misused.returncode == 2
    assert "No such option" in misused.stderr
    assert "Traceback" not in fine.stderr + wrong.stderr + misused.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[models]]\nname = "a"\nkind = "river"\nfactory = "no.such:thing"\n', "no.such"),
        ("[files.columns]\nuser_id = 5\n", "files.columns.user_id = 5"),
        ('[kafka.columns]\nnope = "x"\n', "kafka.columns.nope: unknown field"),
        ("[kafka.click_columns]\nts = 5\n", "kafka.click_columns.ts = 5"),
        ('[kafka]\noauth = "no.such:token"\n', 'kafka.oauth = "no.such:token": cannot be imported'),
        (
            '[kafka]\nformat = "avro"\nschema_registry = { url = "http://r", ca = "no.pem" }\n',
            "kafka.schema_registry: a file cannot be used",
        ),
        ('[[notify]]\nkind = "slack"\nurl_file = "no/url"\n', 'notify "slack": url_file = "no/url": no such file'),
        ('[server]\nexternal_url = "here"\n', "must be an address such as"),
        (
            '[[notify]]\nkind = "email"\nhost = "h"\nsender = "me"\nto = ["a@b"]\n',
            'notify.0.sender = "me": must be an address',
        ),
        ('[server]\ntoken_file = "no/token"\n', 'server.token_file = "no/token": no such file'),
        ('[server]\ntoken_scope = "all"\n', 'server.token_scope = "all": there is no token'),
        ('[server]\ntls_certificate = "no.pem"\ntls_key = "no.key"\n', 'server.tls_certificate = "no.pem": no such'),
        ('[server]\ntls_key = "no.key"\n', 'server.tls_certificate = "": is needed with server.tls_key = "no.key"'),
    ],
)
def test_config_check_looks_at_models_mappings_and_the_door_too(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    result = CliRunner().invoke(cli.cli, ["config", "check", "-c", str(tmp_path / "c.toml")])
    assert result.exit_code == 1
    assert says in str(result.exception)


def test_config_show_prints_what_config_check_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMEVAL_JOIN__ATTRIBUTION_WINDOW", "7m")
    shown = CliRunner().invoke(cli.cli, ["config", "show"])
    assert shown.exit_code == 0
    assert tomllib.loads(shown.output)["join"]["attribution_window"] == "7m"
    monkeypatch.delenv("STREAMEVAL_JOIN__ATTRIBUTION_WINDOW")
    assert loaded(tmp_path, shown.output).join.attribution_window == 7 * 60_000
    assert json.dumps(tomllib.loads(shown.output))


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "127.0.0.1:9092",
        "[::1]:9092",
        "b-1.x_y.aws:9098, b-2.x_y.aws:9098",
        "SASL_SSL://a:9093",
        "[fe80::1%eth0]:1",
    ],
)
def test_brokers_are_addresses_as_the_clients_take_them(text: str) -> None:
    assert Settings.model_validate({"kafka": {"bootstrap_servers": text}}).kafka.bootstrap_servers == text
