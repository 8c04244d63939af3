"""What readers see of a comparison: types, JSON and words."""
