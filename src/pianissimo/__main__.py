"""`python -m pianissimo`: the command line."""

from pianissimo.cli.main import main

main()
