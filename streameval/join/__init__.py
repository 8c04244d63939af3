"""Impressions + clicks -> labelled impressions, in event time: `joiner` is where to begin."""
