"""Assay measures how robust transformer models are: `assay.service`, `.workers`, `.models`, `.attacks`."""
