"""What once went wrong, asked of any checkout: `python -m tests.history PATH_OF_A_CHECKOUT [ROW ...]`.

Each row is a program that makes the assertion of a test of today in words that early versions understand too. It holds
on this version and fails on those before the row was mended: N are rows of what was left behind, Y of a year's run.
docs/decisions/0015-seen-to-fail.md has what was seen.
"""
