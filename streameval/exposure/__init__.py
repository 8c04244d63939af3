"""How likely an item was to be shown, where the log does not say: estimators as pure functions of counts."""
