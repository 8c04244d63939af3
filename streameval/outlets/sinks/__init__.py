"""Results and verdicts, pane by pane, to Parquet, Kafka or a database."""
