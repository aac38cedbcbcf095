"""The audit of an erasure: provenance, references, behaviour, attacks, and the verdict."""
