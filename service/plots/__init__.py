"""Plots of results as Vega-Lite specifications, and the process that renders them."""
