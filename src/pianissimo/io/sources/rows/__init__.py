"""The rows of one file or of some lines, by the format they are stored in."""
