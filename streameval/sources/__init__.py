"""Where batches come from: Kafka (two clients behind one protocol), files, the embedded broker; decoding; dead letters."""
