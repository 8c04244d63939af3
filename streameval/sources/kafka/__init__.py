"""Kafka through either client library: `source` reads, `writer` writes, `embedded` is a broker in this process."""
