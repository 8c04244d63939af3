"""The commands of a delivery pipeline: announce a deploy, and wait for the verdict on it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from streameval import gate as gates
from streameval.client import Monitor, read_token
from streameval.units import parse_duration


def seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """A duration such as "30m", in seconds."""
    try:
        return parse_duration(value) / 1000
    except ValueError as error:
        raise click.BadParameter(f'"{value}": {error}', ctx, param) from None


URL = click.option(
    "--url", default="http://127.0.0.1:8080", show_default=True, help="Of the running monitor.", envvar="STREAMEVAL_URL"
)
URL_IF_ANY = click.option("--url", help="Of a running monitor, to go by what it has observed.")
TOKEN_FILE = click.option(
    "--token-file", type=click.Path(path_type=Path), help="Holds the bearer token (else STREAMEVAL_TOKEN)."
)


@click.command()
@click.option("--model", required=True, help="Model name, as in the events.")
@click.option("--version", required=True, help="Model version, as in the events.")
@click.option("--at", help="When it went live, RFC 3339 or unix seconds; default now.")
@click.option("--note", default="", help="What it changes.")
@click.option("--link", default="", help="The build, the pull request, ...")
@URL
@TOKEN_FILE
def deploy(model: str, version: str, at: str | None, note: str, link: str, url: str, token_file: Path | None) -> None:
    """Announce to a running monitor that a version goes live."""
    record = monitor_at(url, token_file).announce(model, version, at, note, link)
    click.echo(f"announced: {record.get('model')} {record.get('version')} at {record.get('at')}")


@click.command()
@click.option("--candidate", required=True, help="The version that was deployed.")
@click.option("--model", help="Model name; may be left out while there is one only.")
@click.option("--within", callback=seconds, default="30m", show_default=True, help="How long to wait for a verdict.")
@click.option("--every", callback=seconds, default="5s", show_default=True, help="How often to ask.")
@URL
@TOKEN_FILE
def gate(candidate: str, model: str | None, within: float, every: float, url: str, token_file: Path | None) -> None:
    """Wait for the verdict on a deploy. Exit status: 0 not worse, 3 worse, 4 undecided, 1 cannot be asked."""
    sys.exit(gates.wait(monitor_at(url, token_file), model, candidate, within, click.echo, every=max(0.05, every)))


def monitor_at(url: str, token_file: Path | None) -> Monitor:
    """A client with the token of the file or the environment. Raises MonitorError."""
    return Monitor(url, read_token(token_file, os.environ))
