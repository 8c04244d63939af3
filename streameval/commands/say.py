"""What a command prints on standard output."""

from __future__ import annotations

import click


def say(text: str, *, nl: bool = True) -> None:
    """Prints the text. The error of a full disk, or another that the system gives without a name, says where."""
    try:
        click.echo(text, nl=nl)
    except BrokenPipeError:  # the reader has had enough
        raise
    except OSError as error:
        error.filename = "standard output"
        raise
