"""Secrets: read from a file or the environment when they are needed, and never shown."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from streameval.settings.tree import ConfigError
from streameval.sources.kafka.options import SHORTEST


def blanked(text: str, secret: str) -> str:
    """A text without a secret. One of fewer than `SHORTEST` characters stays: a password of "a" would blank every word."""
    return text.replace(secret, "***") if len(secret) >= SHORTEST else text


class Secret:
    """A secret and where it is; its text says only where. A file is read again at every use, so that it can be renewed."""

    def __init__(self, name: str, file: str, variable: str, environ: Mapping[str, str] = os.environ) -> None:
        """`name`: of the setting, for errors; `file` or `variable`: where it is."""
        self._name, self._file, self._variable, self._environ = name, file, variable, environ

    def read(self) -> str:
        """The secret. Raises ConfigError, which says where it should be and never what it is."""
        if self._variable:
            where, text = f'{self._name}_env = "{self._variable}"', self._environ.get(self._variable)
            if text is None:
                raise ConfigError(f"{where}: the environment variable is not set")
        else:
            where = f'{self._name}_file = "{self._file}"'
            try:
                text = Path(self._file).read_text(encoding="utf-8")
            except FileNotFoundError:
                raise ConfigError(f"{where}: no such file; write the secret into it") from None
            except (OSError, UnicodeDecodeError) as error:
                said = error.strerror if isinstance(error, OSError) else "not UTF-8"
                raise ConfigError(f"{where}: cannot be read: {said}") from None
        if not text.strip():
            raise ConfigError(f"{where}: is empty; write the secret into it")
        return text.strip()

    def hide(self, text: str) -> str:
        """A text without the secret, should a library have quoted it; see `blanked`."""
        try:
            secret = self.read()
        except ConfigError:
            return text
        for part in {secret, *(p for p in secret.split("/") if len(p) >= 8)}:
            text = blanked(text, part)
        return text

    def __repr__(self) -> str:
        return f"Secret({self._name})"
