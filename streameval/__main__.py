"""`python -m streameval`."""

from streameval.commands.cli import main

main()
