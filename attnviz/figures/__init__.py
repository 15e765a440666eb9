"""From maps to matplotlib figures and overlay pictures."""
