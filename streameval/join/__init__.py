"""Impressions + clicks -> labelled impressions, in event time: start with `joiner`."""
