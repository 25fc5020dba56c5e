"""Cardoso and Rogers, "Differentially private histograms under continual observation", 2022: Figures 1 and 3."""
