"""Figures, tables and HTML pages made from histories."""
