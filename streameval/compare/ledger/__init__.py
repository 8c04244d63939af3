"""What a partition counts for comparisons: int64 sums by blocks of users and items, and by strata of an hour."""
