"""The command that prints a shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_STREAMEVAL_COMPLETE"  # by which the shell's script asks the program


@click.command(short_help="Print the shell's script that completes commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and files in SHELL; how to load it is in docs/operations.md."""
    made = get_completion_class(shell)
    assert made is not None, "click has these three"
    click.echo(made(ctx.find_root().command, {}, "streameval", VARIABLE).source())
