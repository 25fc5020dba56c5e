"""`python -m papers.user_level`."""

from papers.user_level.table_3 import main

main()
