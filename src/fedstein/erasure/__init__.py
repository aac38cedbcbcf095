"""Erasure: the rounds that forget (rounds), the request and its run folders (request), the evidence (audit)."""
