"""Estimators of propensities, as pure functions of counts, for logs without them."""
