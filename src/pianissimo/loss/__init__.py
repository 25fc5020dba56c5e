"""What a mechanism gives away (`losses`), and what that costs as (epsilon, delta): the other files."""
