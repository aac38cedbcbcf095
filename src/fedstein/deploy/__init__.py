"""Deployments: agents on machines of their own."""
