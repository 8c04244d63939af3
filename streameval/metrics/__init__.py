"""Pure functions from a sketch to a number with its error; `registry` lists them."""
