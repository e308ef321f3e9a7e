"""One module per door: a parser and a translation, nothing else."""
