"""What a person sees of plans and releases: texts, notebooks, pictures."""
