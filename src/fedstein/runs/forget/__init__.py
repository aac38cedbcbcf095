"""Forgetting agents: the request, the plan, the rounds, and the end."""
