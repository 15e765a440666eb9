"""From paths to prepared images: find, read, fit."""
