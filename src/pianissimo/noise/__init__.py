"""Exact noise as a function of secret, path and key; and noise plans, which say how it enters each release."""

from pianissimo.noise.haar import HaarPlan, HaarSkipPlan
from pianissimo.noise.keyed import KeyedNoise, Noise, Secret, fresh_secret
from pianissimo.noise.spline import SplinePlan
from pianissimo.noise.toeplitz import ToeplitzPlan
from pianissimo.noise.tree import DoublingPlan, TopDownPlan, TreePlan, best_base

__all__ = [
    "DoublingPlan",
    "HaarPlan",
    "HaarSkipPlan",
    "KeyedNoise",
    "Noise",
    "Secret",
    "SplinePlan",
    "ToeplitzPlan",
    "TopDownPlan",
    "TreePlan",
    "best_base",
    "fresh_secret",
]
