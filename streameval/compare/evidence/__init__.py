"""From sums to evidence: differences, their variance, and tests that may look as often as they like."""
