"""streameval: a streaming progressive-validation monitor for click models."""

__version__ = "0.1.0"
