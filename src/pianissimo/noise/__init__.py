"""Exact noise as a function of secret, path and key; and noise plans, which say how it enters each release."""

from pianissimo.noise.keyed import KeyedNoise, Noise, Secret, fresh_secret
from pianissimo.noise.plans.doubling import DoublingPlan
from pianissimo.noise.plans.haar import HaarPlan
from pianissimo.noise.plans.haar_skip import HaarSkipPlan
from pianissimo.noise.plans.spline import SplinePlan
from pianissimo.noise.plans.toeplitz import ToeplitzPlan
from pianissimo.noise.plans.top_down import TopDownPlan
from pianissimo.noise.plans.tree import TreePlan, best_base

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
