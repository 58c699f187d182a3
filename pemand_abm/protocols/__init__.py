"""Negotiation protocols, each a generator."""
