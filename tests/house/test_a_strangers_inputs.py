"""A kind of model and a kind of source from outside the package, each registered by one object."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import Field
from sklearn.metrics import roc_auc_score

from docs.make import configuration
from streameval import app
from streameval.events.batch import Batch, Features
from streameval.loop.binding import binding
from streameval.loop.pipeline import Pipeline
from streameval.models import registry as models
from streameval.models.ftrl import Ftrl
from streameval.models.protocol import Failed, ModelError
from streameval.models.registry import ModelKind
from streameval.results.snapshot import Snapshot
from streameval.settings.models import ModelSettings
from streameval.settings.sources import SourceSettings
from streameval.settings.toml import load, to_toml
from streameval.settings.tree import ConfigError, Settings
from streameval.sources import registry as sources
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.formats.decode import Decoder
from streameval.sources.protocol import DeadLetterSink, Keeper, Place, Source, SourceError
from streameval.sources.registry import SourceKind, Wiring
from streameval.testing import ManualClock
from tests import asking
from tests.sources.conformance import MAX_EVENTS, PATIENCE, Case, SourceConformance
from tests.sources.files import FILES

T0 = 1_760_000_000_000
ROOT = Path(__file__).parents[2]


# -- a model: how often each value of a feature was clicked ------------------------------------------------------


class PopularitySettings(ModelSettings):
    """Clicks over impressions of the values of one feature."""

    kind: Literal["popularity"] = Field("popularity", description="which sort of model; must be written")
    prior: float = Field(10.0, gt=0, description="impressions that a value begins with")


class Popularity:
    """Of the first feature of every impression."""

    nbytes = 0

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._seen: dict[str, list[float]] = {}

    def predict(self, features: Features, failed: Failed) -> NDArray[np.float64]:
        out = []
        for row in features.dicts or ():
            clicks, shown = self._seen.get(next(iter(row), ""), (0.0, 0.0))
            out.append((clicks + 0.1 * self._prior) / (shown + self._prior))
        return np.array(out)

    def learn(self, features: Features, labels: NDArray[np.int8], failed: Failed) -> None:
        for row, label in zip(features.dicts or (), labels.tolist(), strict=True):
            counts = self._seen.setdefault(next(iter(row), ""), [0.0, 0.0])
            counts[0] += label
            counts[1] += 1

    def state(self) -> Mapping[str, Any]:
        return {"pickle": json.dumps(self._seen).encode()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._seen = json.loads(state["pickle"])


POPULARITY = ModelKind(PopularitySettings, lambda s: Popularity(s.prior), needs="dicts")


class TwinSettings(ModelSettings):
    """FTRL once more, under a stranger's name."""

    kind: Literal["twin"] = Field("twin", description="which sort of model; must be written")
    bits: int = Field(18, description="2^`bits` weights")


TWIN = ModelKind(TwinSettings, lambda s: Ftrl(0.3, bits=s.bits), needs="hashed")


class BlindSettings(ModelSettings):
    """Reads no features."""

    kind: Literal["blind"] = Field("blind", description="which sort of model; must be written")


BLIND = ModelKind(BlindSettings, lambda s: Ftrl(0.3, bits=10), needs=None)


@pytest.fixture
def kinds() -> Iterator[None]:
    for kind in (POPULARITY, TWIN, BLIND):
        models.register(kind)
    yield
    for kind in (POPULARITY, TWIN, BLIND):
        models.unregister(kind.name)


def events(n: int, **more: Any) -> list[dict[str, Any]]:
    """Impressions with their labels, of which the item's popularity is all there is to know."""
    rng = np.random.default_rng(3)
    out = []
    for i in range(n):
        item = int(rng.integers(0, 20))
        out.append(
            {
                "type": "impression", "impression_id": f"i{i}", "ts": T0 + 1000 * i, "user_id": f"u{i % 40}",
                "pclick": float(rng.random()), "clicked": bool(rng.random() < item / 20),
                "features": {"item": f"item-{item}"}, **more,
            }
        )  # fmt: skip
    return out


def write(path: Path, what: Sequence[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(json.dumps(event).encode() + b"\n" for event in what))
    return path


def settings(*models: dict[str, Any], **more: Any) -> Settings:
    batch = {"max_events": 100}  # of one batch all is scored before any of it is learned
    join = {"attribution_window": "1m", "allowed_lateness": "0s", "request_gap": "0s", "correction_horizon": "10m"}
    files = {"dead_letters": "", **more.pop("files", {})}
    return Settings.model_validate({"join": join, "batch": batch, "models": list(models), "files": files, **more})


def auc_of(tree: Settings, path: Path) -> dict[str, float]:
    """AUC over the whole run by model, of the online ones."""
    report = app.replay(tree, [path])
    return {
        r.series.model: r.metrics["auc"]
        for r in report.results
        if r.window == "all" and r.slice is None and r.series.source == "online"
    }


def test_a_strangers_model_is_given_its_features(tmp_path: Path, kinds: None) -> None:
    path = write(tmp_path / "t.jsonl", events(3000))
    wired = auc_of(settings({"name": "m", "kind": "ftrl", "bits": 18, "alpha": 0.3}), path)["m"]
    assert wired > 0.7
    assert auc_of(settings({"name": "m", "kind": "twin"}), path)["m"] == wired
    popularity = auc_of(settings({"name": "m", "kind": "popularity", "prior": 5.0}), path)["m"]
    assert popularity == pytest.approx(wired, abs=0.02)
    assert auc_of(settings({"name": "m", "kind": "blind"}), path)["m"] == 0.5


def test_a_strangers_model_is_known_to_the_settings_the_schema_and_the_docs(tmp_path: Path, kinds: None) -> None:
    (tmp_path / "c.toml").write_text('[[models]]\nname = "m"\nkind = "popularity"\nprior = 3\n')
    tree = load(tmp_path / "c.toml")
    assert isinstance(tree.models[0], PopularitySettings)
    (tmp_path / "again.toml").write_text(to_toml(tree))
    assert load(tmp_path / "again.toml") == tree
    known = json.loads(configuration.schema())["properties"]["models"]["items"]["discriminator"]["mapping"]
    assert {"ftrl", "river", "popularity"} <= known.keys()
    assert '### `kind = "popularity"`' in configuration.page()
    (tmp_path / "c.toml").write_text('[[models]]\nname = "m"\nkind = "popularity"\nprior = 0\n')
    with pytest.raises(ConfigError, match=r"^models.0.prior = 0: must be greater than 0$"):
        load(tmp_path / "c.toml")
    (tmp_path / "c.toml").write_text('[[models]]\nname = "m"\nkind = "tree"\n')
    with pytest.raises(ConfigError, match=r'must be "ftrl", "river", "popularity", "twin" or "blind"$'):
        load(tmp_path / "c.toml")


def test_a_kind_that_is_gone_is_unknown_and_one_that_is_there_is_not_replaced(kinds: None) -> None:
    with pytest.raises(ModelError, match='the kind "twin" exists already'):
        models.register(TWIN)
    models.unregister("twin")
    with pytest.raises(ValueError, match="twin"):
        settings({"name": "m", "kind": "twin"})
    models.register(TWIN)


@pytest.mark.parametrize(
    ("name", "mapping", "says"),
    [
        ("t.csv", {}, "no file has a column `features` or `features.<name>`: add one, or name others in"),
        ("t.parquet", {}, "no file has a column `features` or `features.<name>`: add one, or name others in"),
        ("t.jsonl", {"impression_id": "impression_id", "ts": "ts"}, "files.columns maps no features: add features = "),
    ],
)
def test_a_model_whose_features_cannot_be_had_is_refused_at_the_start(
    tmp_path: Path, kinds: None, name: str, mapping: dict[str, str], says: str
) -> None:
    path = tmp_path / name
    FILES[name](events(50), path)  # its tables have no features
    for kind, form in (("twin", "hashed columns"), ("popularity", "a dict for every impression")):
        tree = settings({"name": "m", "kind": kind}, files={"columns": mapping})
        with pytest.raises(ModelError) as failure:
            app.replay(tree, [path])
        assert str(failure.value).startswith(
            f'models "m": kind = "{kind}" needs features (as {form}), and gets none: {says}'
        )
        assert str(failure.value).endswith(", or remove the model")
    app.replay(settings({"name": "m", "kind": "blind"}), [path] if not mapping else [write(path, events(50))])


def test_columns_of_features_are_found_wherever_they_are(tmp_path: Path) -> None:
    flat = [{**event, "features.item": event["features"]["item"]} for event in events(300)]
    names = [name for name in flat[0] if name != "features"]
    rows = [",".join(str(event[name]).replace("True", "1").replace("False", "0") for name in names) for event in flat]
    (tmp_path / "t.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    tree = settings({"name": "m", "kind": "ftrl", "bits": 18, "alpha": 0.3})
    assert auc_of(tree, tmp_path / "t.csv") == auc_of(tree, write(tmp_path / "t.jsonl", events(300)))


# -- a source: a file of JSON lines that somebody goes on writing ------------------------------------------------


class TailSettings(SourceSettings):
    """A file of JSON lines that grows."""

    kind: Literal["tail"] = Field("tail", description="which sort of source; must be written")
    path: str = Field(description="the file")
    features: bool = Field(True, description="whether its events carry features")


class Tail(Source):
    """Reads it line by line, to the end and then for more."""

    inputs = ("lines",)

    def __init__(self, settings: TailSettings, decoder: Decoder, sink: DeadLetterSink, max_events: int) -> None:
        try:
            self._file = open(settings.path, "rb")  # noqa: SIM115  (kept open until close)
        except OSError as error:
            raise SourceError(f"{settings.path}: {error}") from None
        self._settings, self._decoder, self._sink, self._max_events = settings, decoder, sink, max_events
        self._line = 0

    def go_on(self, offsets: Mapping[Place, int]) -> None:
        for _ in range(offsets.get(("lines", 0), 0)):
            self._file.readline()
            self._line += 1

    def lacks_features(self) -> str:
        return "" if self._settings.features else "source.features = false: set it to true"

    def poll(self, timeout: float) -> list[Batch]:
        lines: list[bytes] = []
        while len(lines) < self._max_events:
            line = self._file.readline()
            if not line.endswith(b"\n"):
                self._file.seek(-len(line), 1)
                break
            lines.append(line)
        if not lines:
            time.sleep(min(timeout, 0.01))
            return []
        numbers = range(self._line, self._line + len(lines))
        self._line += len(lines)
        batch, letters = self._decoder.messages(
            lines, [0] * len(lines), topic=("lines",), partition=0, offsets=numbers, format="json", shared=True,
            next_offsets={("lines", 0): self._line},
        )  # fmt: skip
        self._sink.write(letters)
        return [batch]

    def close(self) -> None:
        self._file.close()


TAIL = SourceKind(TailSettings, lambda w: Tail(w.settings.source, w.decoder, w.sink, w.settings.batch.max_events))


class TailCase(Case):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def write(self, what: Sequence[dict[str, Any]]) -> None:
        with open(self.path, "ab") as file:
            file.write(b"".join(json.dumps(event).encode() + b"\n" for event in what))

    def open(self, decoder: Decoder, sink: DeadLetterSink, keeper: Keeper) -> Source:
        tree = Settings.model_validate(
            {"source": {"kind": "tail", "path": str(self.path)}, "batch": {"max_events": MAX_EVENTS}}
        )
        return sources.kind_of_source(tree).open(Wiring(tree, decoder, sink, keeper))

    def place(self, number: int) -> tuple[str, int]:
        return "lines", number


@pytest.fixture
def tail() -> Iterator[None]:
    sources.register(TAIL)
    yield
    sources.unregister("tail")


class TestTail(SourceConformance):
    @pytest.fixture
    def case(self, tail: None, tmp_path: Path) -> Case:
        return TailCase(tmp_path / "log.jsonl")


def running(tree: Settings, until: Callable[[str], bool]) -> Snapshot:
    """`app.run`, stopped once `until` holds of its address; what it saw last."""
    stop, late = threading.Event(), []

    def watch(url: str) -> None:
        try:
            deadline = time.monotonic() + PATIENCE
            while not until(url) and time.monotonic() < deadline:
                time.sleep(0.05)
            late.append(time.monotonic() >= deadline)
        finally:
            stop.set()

    snapshot = app.run(tree, stop, lambda url: threading.Thread(target=watch, args=(url,)).start())
    assert late == [False]
    return snapshot


def matured(n: int) -> Callable[[str], bool]:
    """Whether so many labels have matured, by the API."""

    def holds(url: str) -> bool:
        answer = asking.get(f"{url}/api/v1/status", timeout=PATIENCE)
        return answer.status_code == 200 and answer.json()["events"].get("matured", 0) >= n

    return holds


@pytest.mark.slow
def test_a_strangers_source_is_read_by_run_and_a_restart_goes_on_where_it_was(tmp_path: Path, tail: None) -> None:
    sent = events(600)
    marks = [  # each so much later that all before it has matured
        {**sent[0], "ts": sent[last]["ts"] + 61_000, "impression_id": f"mark-{last}"} for last in (399, 599)
    ]
    log = tmp_path / "log.jsonl"
    tree = settings(
        source={"kind": "tail", "path": str(log)}, store={"path": str(tmp_path / "store")}, server={"port": 0}
    )
    write(log, [*sent[:400], marks[0]])
    first = running(tree, matured(400))
    assert first.events["impressions"] == 401
    write(log, [*sent[:400], marks[0], *sent[400:], marks[1]])
    second = running(tree, matured(601))
    assert second.events["impressions"] == 602
    assert second.events["duplicate_impressions"] == 0
    assert second.partitions[0].offsets == {("lines", 0): 602}
    (logged,) = (r for r in second.results if r.window == "all" and r.slice is None)
    counted = [*sent, marks[0]]
    assert logged.metrics["auc"] == pytest.approx(
        roc_auc_score([e["clicked"] for e in counted], [e["pclick"] for e in counted]), abs=1e-9
    )


class Ending(Tail):
    """A second passes with every poll, and it ends after a minute."""

    clock = ManualClock()
    polls = 0

    def poll(self, timeout: float) -> list[Batch]:
        self.clock.advance(1.0)
        self.polls += 1
        self.finished = self.polls == 60
        return super().poll(0.0)


def test_a_strangers_source_may_fall_silent_whatever_it_calls_its_input(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", events(5))
    tree = settings()
    pipeline = Pipeline(tree, Ending.clock)
    decoder = app.make_decoder(tree, pipeline)
    letters = JsonlDeadLetters("")
    source = Ending(TailSettings(path=str(log)), decoder, letters, 100)
    app.Loop(source, pipeline, app.new_publisher(tree), 0.0, letters).run(threading.Event())
    assert pipeline.partitions[0].joiner.progress.is_idle(0)
    source.close()


def test_checkpoints_of_another_source_are_refused_by_name(tmp_path: Path, tail: None) -> None:
    one = binding(settings(source={"kind": "tail", "path": "a"}))
    assert one["source.kind"] == "tail"
    assert one["source.path"] == "a"
    assert "kafka.impressions_topic" not in one
    assert "source.kind" not in binding(settings())


def test_a_source_without_features_is_refused_with_a_model_that_needs_them(tmp_path: Path, tail: None) -> None:
    log = write(tmp_path / "log.jsonl", events(5))
    source = {"kind": "tail", "path": str(log), "features": False}
    tree = settings({"name": "m", "kind": "ftrl"}, source=source, server={"port": 0})
    says = (
        r'models "m": kind = "ftrl" needs features \(as hashed columns\), and gets none: source.features = false: set'
    )
    with pytest.raises(ModelError, match=says):
        app.run(tree, threading.Event(), lambda url: None)


def test_a_strangers_source_is_known_to_the_settings_the_schema_and_the_docs(tmp_path: Path, tail: None) -> None:
    (tmp_path / "c.toml").write_text('[source]\nkind = "tail"\npath = "a"\n')
    tree = load(tmp_path / "c.toml")
    assert tree.source == TailSettings(path="a")
    (tmp_path / "again.toml").write_text(to_toml(tree))
    assert load(tmp_path / "again.toml") == tree
    known = json.loads(configuration.schema())["properties"]["source"]["discriminator"]["mapping"]
    assert known.keys() == {"kafka", "tail"}
    assert '### `kind = "tail"`' in configuration.page()
    (tmp_path / "c.toml").write_text('[source]\nkind = "tail"\npath = 5\n')
    with pytest.raises(ConfigError, match=r"^source.path = 5: must be a string; write it in quotes$"):
        load(tmp_path / "c.toml")
    (tmp_path / "c.toml").write_text('[source]\nkind = "pipe"\n')
    with pytest.raises(ConfigError, match=r'^source.kind = "pipe": must be "kafka" or "tail"$'):
        load(tmp_path / "c.toml")


@pytest.mark.slow
def test_the_command_knows_the_kinds_of_an_installed_plug_in(tmp_path: Path) -> None:
    here = tmp_path / "site"
    (here / "stranger-1.0.dist-info").mkdir(parents=True)
    (here / "stranger-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (here / "stranger-1.0.dist-info" / "entry_points.txt").write_text("[streameval]\ninputs = strangers_inputs\n")
    (here / "strangers_inputs.py").write_text(
        "from streameval.models.registry import register\n"
        "from tests.house.test_a_strangers_inputs import POPULARITY\n"
        "register(POPULARITY)\n"
    )
    (tmp_path / "c.toml").write_text('[[models]]\nname = "m"\nkind = "popularity"\n')

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "streameval", "config", "check", "-c", str(tmp_path / "c.toml")],
            env={"PYTHONPATH": f"{here}:{ROOT}", "PATH": ""}, capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip

    done = check()
    assert (done.returncode, done.stdout) == (0, "the settings are valid\n"), done.stderr
    (here / "strangers_inputs.py").write_text("1 / 0")
    done = check()
    assert done.returncode == 1
    assert "the installed plug-in strangers_inputs cannot be imported: ZeroDivisionError" in done.stderr
