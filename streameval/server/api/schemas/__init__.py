"""The shapes of the answers, for OpenAPI; tests hold every route to them. Undefined numbers are null with a reason."""
