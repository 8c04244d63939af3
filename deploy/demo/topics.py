"""Makes the topics that the settings name, with equally many partitions; those that are there already stay.

python topics.py CONFIG PARTITIONS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from streameval.settings.toml import load
from streameval.settings.tree import Settings
from streameval.sources.kafka.writer import KafkaWriter


def names(settings: Settings) -> list[str]:
    """All topics of these settings, each once."""
    kafka = settings.kafka
    return sorted({kafka.impressions_topic, kafka.clicks_topic, kafka.dead_letter_topic} - {""})


def main(config: str, partitions: str) -> None:
    """Raises SourceError when the broker does not take them."""
    settings = load(Path(config), os.environ)
    writer = KafkaWriter(settings.kafka.bootstrap_servers, settings.kafka.client_options, client=settings.kafka.client)
    try:
        writer.create_topics(names(settings), int(partitions))
    finally:
        writer.close()
    print(f"{', '.join(names(settings))}: {partitions} partitions each", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
