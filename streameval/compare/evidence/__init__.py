"""From sums to evidence: differences, their variance, and tests that may be evaluated any number of times."""
