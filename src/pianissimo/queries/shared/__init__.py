"""What kinds of queries have in common: what is asked, how it is answered, and what a plan says of it."""
