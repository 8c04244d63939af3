"""Parts for tests of streameval and of things built on it: a scripted source, a manual clock, slow obvious twins."""
