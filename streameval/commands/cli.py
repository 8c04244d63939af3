"""The commands; thin. Exit status: 0 done, 1 an error in one line, 2 wrong usage; `gate` and `status` have more."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from streameval import __version__
from streameval.commands import deploy as deploy_commands
from streameval.commands import plan as plan_command
from streameval.commands import state as state_commands
from streameval.commands.completion import VARIABLE, completion
from streameval.commands.targets import OutFile, TrafficTarget, keep_apart, write_report
from streameval.process import logs, memory, progress, start
from streameval.process.opening import Opening
from streameval.process.quick_sort import choose_sort
from streameval.settings import toml as config_file
from streameval.settings.server import Server
from streameval.settings.tree import ConfigError

if TYPE_CHECKING:
    from streameval.results.snapshot import Snapshot
    from streameval.settings.tree import Settings

log = logging.getLogger(__name__)


CONFIG = click.option("-c", "--config", "config_path", type=click.Path(path_type=Path), help="Settings file (TOML).")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="streameval")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Log format, on stderr.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="Minimum log level; debug quotes events.",
)
def cli(log_format: str, log_level: str) -> None:
    """Progressive-validation monitor for click models: live AUC, GAUC, log loss and calibration."""
    logs.set_up(log_format, log_level)


cli.add_command(deploy_commands.deploy)
cli.add_command(deploy_commands.gate)
cli.add_command(plan_command.plan)
cli.add_command(state_commands.status)
cli.add_command(state_commands.versions)
cli.add_command(completion)


@cli.command(short_help="Read the events and serve the page, /metrics and the API.")
@CONFIG
@click.option("--report", type=OutFile(), help="Write the report here, as JSON, on exit.")
def run(config_path: Path | None, report: Path | None) -> None:
    """Read Kafka, or the configured source, and serve the page, /metrics and the API, until Ctrl-C."""
    memory.settle()
    settings = _load(config_path)
    keep_apart({"--config": [config_path]}, {"--report": report})
    server = settings.server
    with _stoppable() as stop, Opening(server.host, server.port, answers=not server.tls_certificate) as opening:
        with start.quick_imports():  # takes a second or two, during which it may be stopped
            from streameval import app

            import_module("streameval.server.http.app")  # what a run imports next
        snapshot = app.run(settings, stop, lambda at: log.info("page %s  metrics %s/metrics", at, at), opening=opening)
    if report is not None:
        write_report(snapshot.report(), report)


@cli.command(short_help="Evaluate event files, as fast as possible.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@CONFIG
@click.option("--report", type=OutFile(), help="Write the report here, as JSON.")
@click.option(
    "--predictions", type=OutFile(remote=False, only_file=True), help="Write one row per score here, as Parquet."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON instead of a table.")
def replay(
    files: tuple[Path, ...], config_path: Path | None, report: Path | None, predictions: Path | None, as_json: bool
) -> None:
    """Run event FILES (JSONL, CSV, Parquet, Arrow) through the same pipeline, as fast as possible."""
    settings = _load(config_path)
    outputs = {"files.dead_letters": settings.files.dead_letters, "--report": report, "--predictions": predictions}
    keep_apart({"FILES": files, "--config": [config_path]}, outputs)
    with _stoppable() as stop, progress.shown("replay") as line:
        with start.quick_imports():  # takes a second or two
            from streameval import app

        snapshot = app.replay(settings, list(files), predictions, _advance(line), stop)
        if stop.is_set():
            raise click.ClickException("stopped early; no report was written")
    try:
        if report is not None:
            write_report(snapshot.report(), report)
    finally:  # the numbers are shown also if they cannot be written
        if as_json:
            click.echo(json.dumps(snapshot.report(), indent=1, allow_nan=False))
        else:
            _show(snapshot)
        from streameval.face.show import order_warning

        if (warning := order_warning(snapshot)) is not None:
            click.echo(f"Warning: {warning}", err=True)


@cli.command(short_help="Replay the auctions of event files under each version.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@CONFIG
@click.option("--report", type=OutFile(), help="Write the results here, as JSON.")
def auction(files: tuple[Path, ...], config_path: Path | None, report: Path | None) -> None:
    """Replay the auctions in event FILES under every version's scores at every operating point of the config."""
    settings = _load(config_path)
    outputs = {"files.dead_letters": settings.files.dead_letters, "--report": report}
    keep_apart({"FILES": files, "--config": [config_path]}, outputs)
    with _stoppable() as stop, progress.shown("auction") as line:
        with start.quick_imports():
            from streameval import app
            from streameval.auction import offline

        found = app.auction(settings, list(files), _advance(line), stop)
    try:
        if report is not None:
            write_report(offline.as_json(found), report)
    finally:
        click.echo(offline.as_text(found))


@cli.command(short_help="Run a monitor over simulated traffic with a bad deploy.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of the page; 0 picks a free one.",
)
@click.option("--seconds", type=click.FloatRange(min=1), help="Stop after this long (default: run until Ctrl-C).")
@click.option(
    "--client",
    type=click.Choice(["confluent", "kafka-python"]),
    default="confluent",
    show_default=True,
    help="Kafka client library.",
)
def demo(port: int, seconds: float | None, client: str) -> None:
    """Run an embedded broker, simulated traffic with a bad deploy, the monitor and its page in one process."""
    with _stoppable() as stop, Opening(Server().host, port) as opening:
        with start.quick_imports():
            from streameval.commands import demo as demonstration

            import_module("streameval.server.http.app")  # what a run imports next
        snapshot = demonstration.run(port, seconds, client, stop, lambda text: click.echo(text, err=True), opening)
    _show(snapshot)


@cli.command(short_help="Write simulated traffic to a file or to Kafka.")
@click.argument("target", type=TrafficTarget())
@click.option(
    "--scenario",
    type=click.Choice(["demo", "bench", "nasty"]),
    default="demo",
    show_default=True,
    help="demo: a bad deploy after 30 s; bench: plain traffic, 1% CTR; nasty: late, duplicate, malformed and lost events.",
)
@click.option("--seconds", type=click.FloatRange(min=1), default=120.0, show_default=True, help="Length in event time.")
@click.option("--rate", type=click.FloatRange(min=1), help="Impressions per second of event time.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    help="For Kafka: 1 is real time (default: as fast as possible).",
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
    """Write simulated traffic with known ground truth to TARGET: a file (.jsonl[.gz|.zst], .csv, .parquet), or `kafka`."""
    settings = _load(config_path)
    with _stoppable() as stop, progress.shown("simulate", "") as line:
        with start.quick_imports():
            from streameval.commands import demo as demonstration

        impressions, clicks = demonstration.simulate(
            str(target), scenario, seconds, rate, speed=speed, seed=seed, settings=settings, stop=stop, advance=line
        )
        if stop.is_set() and str(target) != "kafka":
            raise click.ClickException(f"stopped early; {target} is incomplete")
    click.echo(f"{impressions} impressions, {clicks} clicks -> {target}", err=True)


@cli.group("notify")
def notify_group() -> None:
    """Notifications of verdicts."""


@notify_group.command(short_help="Send a test message to the receivers.")
@click.argument("names", nargs=-1)
@CONFIG
def test(names: tuple[str, ...], config_path: Path | None) -> None:
    """Send a test message to the receivers NAMES of `[[notify]]`, or to all. Exit status 1 if a delivery fails."""
    settings = _load(config_path)
    from streameval.commands.notify import send_test

    if not send_test(settings, names, click.echo):
        sys.exit(1)


@cli.group("config")
def config_group() -> None:
    """Check or show the settings."""


@config_group.command(short_help="Check the settings and what they refer to.")
@CONFIG
@click.option(
    "--connect",
    is_flag=True,
    help="Also check the broker, the topics, the schema registry and the disk; exit status 1 if any check fails.",
)
def check(config_path: Path | None, connect: bool) -> None:
    """Check the settings, including the token, certificate, models, receivers and sinks."""
    settings = _load(config_path)
    from streameval.models.registry import make_model
    from streameval.outlets.notify.receivers import make_receiver
    from streameval.outlets.sinks.kinds import make_sink
    from streameval.server.http.access import Access, read_token
    from streameval.server.http.tls import certificate_dates, tls_context
    from streameval.sources.formats.mapping import ColumnMap
    from streameval.sources.registry import kind_of_source

    for model in settings.models:
        make_model(model)
    ColumnMap(settings.files.columns)
    kind_of_source(settings).check(settings)
    Access(read_token(settings.server.token_file, os.environ), settings.server.token_scope)
    tls_context(settings.server)
    certificate = certificate_dates(settings.server)
    for one in settings.notify:
        try:
            make_receiver(one).check()
        except ConfigError as error:
            raise ConfigError(f'notify "{one.called}": {error}') from None
    for sink in settings.sinks:
        make_sink(sink, settings.kafka).close()
    click.echo("the settings are valid")
    if certificate is not None and (expiry := certificate.words(time.time())) is not None:
        click.echo(expiry, err=True)
    if connect:
        from streameval.commands.connect import connections

        failed = False
        with progress.shown("asking", "") as line:
            for found in connections(settings):
                if line is not None:
                    line.clear()
                click.echo(found.line())
                failed |= found.state == "fail"
        if failed:
            sys.exit(1)


@config_group.command()
@CONFIG
def show(config_path: Path | None) -> None:
    """Print the effective settings, defaults included, as TOML."""
    click.echo(config_file.to_toml(_load(config_path)), nl=False)


def _show(snapshot: Snapshot) -> None:
    from streameval.face.show import overall

    click.echo(overall(snapshot))


def main() -> None:
    """The console entry: every expected error is one line on stderr and status 1."""
    start.open_standard_streams()
    start.name_standard_output()
    choose_sort()
    try:
        sys.path.insert(0, os.getcwd())  # a model's factory may live beside the config
    except FileNotFoundError:
        _fail("the current directory has been removed; change to another one")
    try:
        cli.main(standalone_mode=False, complete_var=VARIABLE)
    except click.exceptions.Abort as aborted:  # as click has Ctrl-C, and the end of any file that came too early
        if isinstance(aborted.__cause__, EOFError):
            _fail_inside(aborted.__cause__)
        sys.exit(1)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message())
    except BrokenPipeError:
        sys.exit(1)
    except MemoryError:
        _fail("out of memory; raise the limit of this process (ulimit -v, or the container's)")
    except ImportError as error:  # its message names a file, never an event
        _fail(f"cannot be loaded: {error}; install it again, or raise the limit of memory (ulimit -v) if that is low")
    except Exception as error:
        if _has_a_name(error):
            _fail(str(error))
        _fail_inside(error)


def _fail_inside(error: Exception) -> NoReturn:
    log.debug("full traceback", exc_info=error)
    _fail(
        "internal error; please report it. Its message may quote an event, so it is logged only at "
        f"--log-level debug.\n{logs.trace(error)}"
    )


def _fail(message: str) -> NoReturn:
    """Ends with status 1 and one line, in the format of the log."""
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
    for plug_in in entry_points(group="streameval"):  # their import registers kinds of models and sources
        try:
            plug_in.load()
        except Exception as error:  # third-party code
            raise ConfigError(
                f"the installed plug-in {plug_in.value} cannot be imported: {type(error).__name__}: {error}; fix or "
                "uninstall it"
            ) from error
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


def _advance(line: progress.ProgressLine | None) -> Callable[[tuple[int, int] | None, int], None] | None:
    """The callback of a replay: bytes read, bytes in total, and events so far."""
    if line is None:
        return None

    def advance(done: tuple[int, int] | None, events: int) -> None:
        share = done[0] / done[1] if done and done[1] else None
        line(share, f"{events:,} events" if share is None or share < 1 else f"{events:,} events, finishing")

    return advance
