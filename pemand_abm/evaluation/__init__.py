"""Predictions against what surveyed households did: trials, methods, baselines, metrics, tables."""
