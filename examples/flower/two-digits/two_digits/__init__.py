"""Two digits in one picture, on Flower."""
