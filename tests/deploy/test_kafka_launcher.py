"""The launcher of a real Kafka: what it hands to Kafka's own tools."""

import importlib.util
from pathlib import Path

LAUNCHER = Path(__file__).parents[2] / "deploy" / "kafka" / "kafka.py"


def test_a_cluster_id_is_never_taken_for_an_option() -> None:
    """One random id in 64 begins with a dash, and `kafka-storage format -t -abc` then stops with 'expected one argument'."""
    spec = importlib.util.spec_from_file_location("kafka_launcher", LAUNCHER)
    assert spec is not None
    assert spec.loader is not None
    launcher = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(launcher)
    ids = {launcher._cluster_id(bytes([first]) + bytes(range(15))) for first in range(256)}
    assert len(ids) > 200  # as good as any random id, apart from the dash
    assert all(len(name) == 22 and not name.startswith("-") for name in ids)
