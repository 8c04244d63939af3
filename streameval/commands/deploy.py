"""The commands for delivery pipelines: announce a deploy, and wait for the verdict on it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from streameval.commands import gate as gates
from streameval.commands.client import MonitorClient, read_token
from streameval.commands.columns import printable
from streameval.process import progress
from streameval.settings.units import parse_duration


def seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """A duration such as "30m", in seconds."""
    try:
        return parse_duration(value) / 1000
    except ValueError as error:
        raise click.BadParameter(f'"{value}": {error}', ctx, param) from None


URL = click.option(
    "--url",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="Address of the running monitor.",
    envvar="STREAMEVAL_URL",
)
URL_IF_ANY = click.option("--url", help="Address of a running monitor, to use the variance that it has observed.")
TOKEN_FILE = click.option(
    "--token-file", type=click.Path(path_type=Path), help="File with the bearer token (default: STREAMEVAL_TOKEN)."
)

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command()
@click.option("--model", required=True, help="Model name, as in the events.")
@click.option("--version", required=True, help="Model version, as in the events.")
@click.option("--at", help="When it went live, RFC 3339 or unix seconds (default: now).")
@click.option("--note", default="", help="What has changed.")
@click.option("--link", default="", help="Link to the build, the pull request, ...")
@URL
@TOKEN_FILE
def deploy(model: str, version: str, at: str | None, note: str, link: str, url: str, token_file: Path | None) -> None:
    """Announce the deploy of a version to a running monitor."""
    record, warning = monitor_at(url, token_file).announce(model, version, at, note, link)
    click.echo(f"announced: {record.get('model')} {record.get('version')} at {record.get('at')}")
    if warning is not None:
        click.echo(f"warning: {printable(warning)}", err=True)


@click.command()
@click.option("--candidate", required=True, help="The version that was deployed.")
@click.option("--model", help="Model name; optional while there is only one.")
@click.option("--within", callback=seconds, default="30m", show_default=True, help="How long to wait for a verdict.")
@click.option("--every", callback=seconds, default="5s", show_default=True, help="How often to poll.")
@URL
@TOKEN_FILE
@click.option(
    "--json", "as_json", is_flag=True, help="Print the last verdict as one JSON object; changes go to stderr."
)
def gate(
    candidate: str, model: str | None, within: float, every: float, url: str, token_file: Path | None, as_json: bool
) -> None:
    """Wait for the verdict on a deploy. Exit status: 0 not worse, 3 worse, 4 undecided, 1 monitor unreachable or another error."""
    last: dict[str, Any] = {}
    monitor = monitor_at(url, token_file)
    with progress.shown("gate", f"waiting for the verdict on {printable(candidate)}") as line:

        def tell(text: str) -> None:
            if line is not None:
                line.clear()
            if as_json:
                click.echo(text, err=True)
            else:
                click.echo(text)

        def watch(answer: dict[str, Any]) -> None:
            last.update(answer)
            if line is not None:
                counts = [answer.get(name) for name in ("impressions", "clicks")]
                line(None, "{:,} impressions, {:,} clicks".format(*(n if isinstance(n, int) else 0 for n in counts)))

        code = gates.wait(monitor, model, candidate, within, tell, every=max(0.05, every), watch=watch)
    if as_json:
        click.echo(json.dumps({"exit_status": code, **last}, indent=1))
    sys.exit(code)


def monitor_at(url: str, token_file: Path | None) -> MonitorClient:
    """A client with the token of the file or the environment. Raises MonitorError."""
    return MonitorClient(url, read_token(token_file, os.environ))
