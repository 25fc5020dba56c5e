"""Published results remade, one folder for each paper: the claim, the script, expected numbers, the figure."""
