"""Kaplan, Mansour and Stemmer, "The sparse vector technique, revisited", COLT 2021: Example 1.4."""
