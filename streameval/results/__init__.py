"""What readers see: numbers by series and window, whether they are reliable, and the immutable snapshot that contains them."""
