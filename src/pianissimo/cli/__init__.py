"""All that prints in a terminal."""
