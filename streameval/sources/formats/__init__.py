"""From the bytes of a message or a file to columns of events: one module per format, one set of rules for all."""
