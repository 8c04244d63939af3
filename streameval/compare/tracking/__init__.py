"""Deploys and comparisons over time: which versions are compared, and what every look has found."""
