"""Events as columns, and the names and codes of versions and slice values."""
