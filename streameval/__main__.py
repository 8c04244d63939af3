"""`python -m streameval`."""

from streameval.cli import main

main()
