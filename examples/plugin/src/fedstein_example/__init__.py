"""Parts for fedstein: a sparsifier, a method and a scheduler."""
