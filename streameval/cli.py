"""The commands; thin. Exit status: 0 done, 1 a failure said in one line, 2 wrong usage; `gate` has more."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streameval import __version__, config_file, deploy_commands, logs, memory, plan_command

if TYPE_CHECKING:
    from streameval.config import Settings
    from streameval.report import Snapshot

log = logging.getLogger(__name__)


class OutFile(click.Path):
    """A file that is written at the end of long work: its folder is looked at before the work begins."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        path = Path(super().convert(value, param, ctx))  # type: ignore[arg-type]  # a Path: path_type says so
        if not path.parent.is_dir():
            self.fail(f"{path}: there is no folder {path.parent}; make it first", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"{path}: the folder {path.parent} cannot be written", param, ctx)
        return path


class Target(OutFile):
    """A file, or `kafka` (whatever is called so here)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        return Path("kafka") if str(value) == "kafka" else super().convert(value, param, ctx)


CONFIG = click.option("-c", "--config", "config_path", type=click.Path(path_type=Path), help="Settings, a TOML file.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="streameval")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="How log lines look (stderr).")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="From where on lines are logged; debug quotes events.",
)
def cli(log_format: str, log_level: str) -> None:
    """Progressive-validation monitor for click models: live AUC, GAUC, log loss and calibration."""
    logs.set_up(log_format, log_level)


cli.add_command(deploy_commands.deploy)
cli.add_command(deploy_commands.gate)
cli.add_command(plan_command.plan)


@cli.command()
@CONFIG
@click.option("--report", type=OutFile(), help="Write the report here, as JSON, when it is stopped.")
def run(config_path: Path | None, report: Path | None) -> None:
    """Read Kafka and serve the page, /metrics and the API, until Ctrl-C."""
    memory.settle()
    settings = _load(config_path)
    with _stoppable() as stop:
        from streameval import app  # takes a second or two, in which it may be told to stop

        snapshot = app.run(settings, stop, lambda url: log.info("page %s  metrics %s/metrics", url, url))
    if report is not None:
        _write_report(snapshot, report)


@cli.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@CONFIG
@click.option("--report", type=OutFile(), help="Write the report here, as JSON.")
@click.option("--predictions", type=OutFile(), help="Write one row per score here, as Parquet.")
def replay(files: tuple[Path, ...], config_path: Path | None, report: Path | None, predictions: Path | None) -> None:
    """Run event FILES (JSONL, CSV, Parquet, Arrow) through the same pipeline, as fast as it goes."""
    settings = _load(config_path)
    from streameval import app

    with _stoppable() as stop, _progress_bar() as advance:
        snapshot = app.replay(settings, list(files), predictions, advance, stop)
        if stop.is_set():
            raise click.ClickException("stopped before the end; no report was written")
    if report is not None:
        _write_report(snapshot, report)
    click.echo(_table(snapshot))


@cli.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Of the page; 0 picks a free one."
)
@click.option("--seconds", type=click.FloatRange(min=1), help="End by itself after so long (default: Ctrl-C).")
@click.option(
    "--client",
    type=click.Choice(["confluent", "kafka-python"]),
    default="confluent",
    show_default=True,
    help="Kafka client that reads.",
)
def demo(port: int, seconds: float | None, client: str) -> None:
    """Embedded broker + simulated traffic with a bad deploy + monitor + page, in one process."""
    from streameval import demo as demonstration

    with _stoppable() as stop:
        snapshot = demonstration.run(port, seconds, client, stop, lambda text: click.echo(text, err=True))
    click.echo(_table(snapshot))


@cli.command()
@click.argument("target", type=Target())
@click.option(
    "--scenario",
    type=click.Choice(["demo", "bench", "nasty"]),
    default="demo",
    show_default=True,
    help="demo: a bad deploy after 45 s; bench: 1% CTR and nothing else; nasty: late, doubled, broken and lost events.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=120.0, show_default=True, help="Length, in event time."
)
@click.option("--rate", type=click.FloatRange(min=1), help="Impressions a second of event time.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    help="Into Kafka: 1 is real time; default flat out.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 32) - 1),
    default=1,
    show_default=True,
    help="The same seed writes the same file.",
)
@CONFIG
def simulate(
    target: Path,
    scenario: str,
    seconds: float,
    rate: float | None,
    speed: float | None,
    seed: int,
    config_path: Path | None,
) -> None:
    """Write traffic with known truth to TARGET: a file (.jsonl[.gz|.zst], .csv, .parquet), or `kafka`."""
    settings = _load(config_path)
    from streameval import demo as demonstration

    with _stoppable() as stop:
        impressions, clicks = demonstration.simulate(str(target), scenario, seconds, rate, speed, seed, settings, stop)
    click.echo(f"{impressions} impressions, {clicks} clicks -> {target}", err=True)


@cli.group("config")
def config_group() -> None:
    """Check or show the settings."""


@config_group.command()
@CONFIG
def check(config_path: Path | None) -> None:
    """Say whether the settings can be used."""
    settings = _load(config_path)
    from streameval.pipeline import make_model
    from streameval.server.access import Access, read_token
    from streameval.server.tls import tls_context
    from streameval.sources.columns import ColumnMap

    for model in settings.models:
        make_model(model)
    ColumnMap(settings.files.columns)
    Access(read_token(settings.server.token_file, os.environ), settings.server.token_scope)
    tls_context(settings.server)
    click.echo("the settings are valid")


@config_group.command()
@CONFIG
def show(config_path: Path | None) -> None:
    """Print the settings in force, defaults included, as TOML."""
    click.echo(config_file.to_toml(_load(config_path)), nl=False)


def _write_report(snapshot: Snapshot, path: Path) -> None:
    text = json.dumps(snapshot.report(), indent=1, allow_nan=False)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    os.replace(partial, path)


def main() -> None:
    """The console entry: every failure that has a name is one line on stderr and status 1."""
    sys.path.insert(0, os.getcwd())  # a model's factory may live beside the config
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(1)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message())
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        if _has_a_name(error):
            _fail(str(error))
        log.debug("the whole of it", exc_info=error)
        _fail(
            "a fault of the program; please report it. What the error says may quote an event, so it is logged at "
            f"--log-level debug only.\n{logs.trace(error)}"
        )


def _fail(message: str) -> NoReturn:
    """Ends with status 1 and one line, in the form that the log has."""
    handlers = logging.getLogger().handlers
    if handlers and isinstance(handlers[0].formatter, logs.JsonLines):
        log.error("%s", message)
    else:
        click.echo(f"streameval: {message}", err=True)
    sys.exit(1)


def _has_a_name(error: Exception) -> bool:
    names = {cls.__name__ for cls in type(error).__mro__}
    return bool(
        names & {"ConfigError", "SourceError", "ModelError", "ServeError", "StoreError", "MonitorError", "OSError"}
    )


def _load(path: Path | None) -> Settings:
    return config_file.load(path, os.environ)


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second signal ends the process at once."""
    stop = threading.Event()

    def handle(number: int, frame: Any) -> None:
        del frame
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def _progress_bar() -> Iterator[Any]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1000, label="replay", file=sys.stderr, item_show_func=lambda n: n or "") as bar:
        done = 0

        def advance(progress: tuple[int, int] | None, events: int) -> None:
            nonlocal done
            if progress and progress[1]:
                now = min(1000, progress[0] * 1000 // progress[1])
                bar.update(now - done, f"{events:,} events")
                done = now

        yield advance


def _table(snapshot: Snapshot) -> str:
    """The overall results as text."""
    head = ("model", "version", "window", "impressions", "clicks", "auc", "gauc", "log_loss", "rig", "calibration")
    rows: list[tuple[str, ...]] = [head]
    for r in snapshot.results:
        if r.slice is None:
            numbers = ["-" if (v := r.metrics[name]) is None else f"{v:.4f}" for name in head[5:]]
            mark = "" if r.reliable else f"  ! {r.reliable_reason}"
            counts = (f"{r.totals.impressions:,}", f"{r.totals.clicks:,}")
            rows.append((r.series.model, r.series.version, r.window, *counts, *numbers[:-1], numbers[-1] + mark))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    events = ", ".join(f"{k} {v:,}" for k, v in snapshot.events.items() if isinstance(v, int) and v)
    invalid = snapshot.events.get("invalid") or {}
    bad = "; dead letters: " + ", ".join(f"{k} {v:,}" for k, v in invalid.items()) if invalid else ""
    return "\n".join([*lines, "", events + bad])
