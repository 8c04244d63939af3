"""Deploys and comparisons over time: who is compared with whom, and what every look has found."""
