"""The pages of docs/reference/, made from the code: `python -m docs.make` writes them, `--check` compares."""
