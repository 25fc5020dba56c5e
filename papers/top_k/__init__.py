"""Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get composition", 2019."""
